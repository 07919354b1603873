/** A running command as a process of Mastra. Its output is read as it comes; of each channel, the newest is kept. */
import { killGraceSeconds } from "@cogni/sandbox-core/ExecutorLimits"
import type { Process } from "@cogni/sandbox-promise"
import { commandFailureOf, killedCode } from "@cogni/sandbox-promise/Failure"
import {
  type CommandResult,
  ProcessHandle,
  SandboxError,
  type SpawnProcessOptions
} from "@mastra/core/workspace"
import type { Readable } from "node:stream"
import type * as CommandInput from "./CommandInput.ts"
import * as MastraErrors from "./MastraErrors.ts"
import * as OutputReader from "./OutputReader.ts"

/** Exit code of a command that was ended at its time limit, as `timeout` of coreutils reports it. */
const timedOutCode = 124

/** Text that is kept for `reader` when it is not read. Then the process waits, as it would for a full pipe. */
const readerBytesMax = 1024 * 1024

interface ProcessOptions extends Pick<SpawnProcessOptions, "onStdout" | "onStderr"> {
  readonly pid: string
  readonly maxRetainedBytes: number
  readonly timeoutMsMax: number | undefined
  /** Bytes of stdout and stderr together, after which the process is ended. */
  readonly outputBytesMax: number
}

/** Why the process was ended from outside. */
interface Ending {
  readonly exitCode: number
  readonly timedOut: boolean
  /** For the model, at the end of standard error. */
  readonly note: string
}

interface Outcome {
  readonly exitCode: number
  readonly killed: boolean
  readonly timedOut: boolean
}

const killed: Ending = { exitCode: killedCode, timedOut: false, note: "" }

export class SandboxProcess extends ProcessHandle {
  readonly pid: string
  readonly #process: Process
  readonly #input: CommandInput.CommandInput | undefined
  readonly #startedMs = performance.now()
  readonly #ended: Promise<Outcome>
  #durationMs = 0
  #exitCode: number | undefined
  #ending: Ending | undefined
  #output: OutputReader.OutputReader | undefined
  #waitsForReader = true

  constructor(process: Process, input: CommandInput.CommandInput | undefined, options: ProcessOptions) {
    super(options)
    this.pid = options.pid
    this.#process = process
    this.#input = input
    this.#ended = this.#run(options)
    // Those who wait for it see its error. A process that no one waits for must not end the program.
    this.#ended.catch(() => undefined)
    const release = () => this.#release()
    process.exit.then(release, release)
  }

  get exitCode(): number | undefined {
    return this.#exitCode
  }

  override async wait(): Promise<CommandResult> {
    const outcome = await this.#ended
    return {
      ...outcome,
      success: outcome.exitCode === 0,
      stdout: this.stdout,
      stderr: this.stderr,
      executionTimeMs: this.#durationMs
    }
  }

  async kill(): Promise<boolean> {
    if (this.#exitCode !== undefined) return false
    await this.#end(killed, "SIGKILL")
    return true
  }

  async sendStdin(data: string): Promise<void> {
    await this.#stdin().write(data)
  }

  override async closeStdin(): Promise<void> {
    await this.#stdin().close()
  }

  override get reader(): Readable {
    if (this.#output === undefined) {
      this.#output = OutputReader.make(readerBytesMax)
      if (this.#exitCode !== undefined) this.#output.end()
    }
    return this.#output.stream
  }

  override emitStdout(data: string): void {
    this.#output?.push(data)
    super.emitStdout(data)
  }

  #stdin(): CommandInput.CommandInput {
    if (this.#exitCode !== undefined) {
      throw new SandboxError(
        `process ${this.pid} has ended with exit code ${this.#exitCode}`,
        "PROCESS_ENDED"
      )
    }
    if (this.#input === undefined) {
      throw new SandboxError(
        `process ${this.pid} has no standard input. Start it with stdinMode "pipe"`,
        "STDIN_UNAVAILABLE"
      )
    }
    return this.#input
  }

  /** A process that has ended, or must, no longer waits for its reader. */
  #release(): void {
    this.#waitsForReader = false
    this.#output?.release()
  }

  /** The first reason counts. */
  async #end(ending: Ending, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    this.#ending ??= ending
    this.#release()
    // It may have ended, or the sandbox may be over.
    await this.#process.kill(signal).catch(() => undefined)
  }

  async #run({ outputBytesMax, timeoutMsMax }: ProcessOptions): Promise<Outcome> {
    const timers: Array<NodeJS.Timeout> = []
    if (timeoutMsMax !== undefined) {
      const late: Ending = {
        exitCode: timedOutCode,
        timedOut: true,
        note: `the command was still running after ${timeoutMsMax} ms, and was ended`
      }
      timers.push(
        setTimeout(() => void this.#end(late, "SIGTERM"), timeoutMsMax),
        setTimeout(() => void this.#end(late, "SIGKILL"), timeoutMsMax + killGraceSeconds * 1000)
      )
    }
    try {
      await this.#deliver(outputBytesMax)
      const { exitCode, signal } = await this.#process.exit
      return this.#over(this.#ending, exitCode, signal !== undefined)
    } catch (thrown) {
      const failure = commandFailureOf(thrown)
      if (failure === undefined) {
        this.#over(killed, killedCode, true)
        throw MastraErrors.ofSandbox(thrown)
      }
      const { exitCode = killedCode, message } = failure
      return this.#over({ ...killed, exitCode, note: message }, exitCode, true)
    } finally {
      for (const timer of timers) clearTimeout(timer)
      this.#output?.end()
      await this.#process[Symbol.asyncDispose]()
    }
  }

  async #deliver(outputBytesMax: number): Promise<void> {
    // The bytes of one character can arrive in two pieces.
    const decoders = { stdout: decoder(), stderr: decoder() }
    let bytesSeen = 0
    for await (const { bytes, channel } of this.#process.output) {
      bytesSeen += bytes.byteLength
      if (bytesSeen > outputBytesMax) {
        // Read on: the end of a process is known only when its output was read.
        const note = `the command wrote more than ${outputBytesMax} bytes, and was ended. Write to a file instead`
        if (this.#ending === undefined) await this.#end({ ...killed, note }, "SIGKILL")
        continue
      }
      this.#emit(channel, decoders[channel].decode(bytes, { stream: true }))
      if (this.#waitsForReader) await this.#output?.room()
    }
    this.#emit("stdout", decoders.stdout.decode())
    this.#emit("stderr", decoders.stderr.decode())
  }

  #emit(channel: "stdout" | "stderr", text: string): void {
    if (text === "") return
    if (channel === "stdout") this.emitStdout(text)
    else this.emitStderr(text)
  }

  #over(ending: Ending | undefined, exitCode: number, wasSignalled: boolean): Outcome {
    const code = ending?.exitCode ?? exitCode
    this.#durationMs = Math.round(performance.now() - this.#startedMs)
    this.#exitCode = code
    if (ending !== undefined && ending.note !== "") {
      this.emitStderr(this.stderr === "" || this.stderr.endsWith("\n") ? ending.note : `\n${ending.note}`)
    }
    return {
      exitCode: code,
      killed: ending !== undefined || wasSignalled,
      timedOut: ending?.timedOut ?? false
    }
  }
}

const decoder = () => new TextDecoder("utf-8", { ignoreBOM: true })
