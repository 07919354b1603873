/** A command that runs on while the model does something else: its unread output, its input, and how it ended. */
import type { Process, Sandbox, Spawn } from "@cogni/sandbox-promise"
import { commandFailureOf, killedCode } from "@cogni/sandbox-promise/Failure"
import * as InputQueue from "./InputQueue.ts"
import * as OutputTail from "./OutputTail.ts"

/** Standard input that a command has not read yet. */
const inputBytesMax = 1024 * 1024

/** Longest time that one call waits for a command. The command itself runs on. */
export const waitMillisMax = 600_000

export interface Output {
  /** Both channels, in the order of arrival. */
  readonly output: string
  readonly stdout: string
  readonly stderr: string
}

export interface RunningCommand {
  readonly hasTerminal: boolean
  /** Waits until the command has ended, but not longer than this. Rejects if the sandbox is over. */
  readonly wait: (millis: number) => Promise<void>
  /** Undefined while it runs. */
  readonly exitCode: () => number | undefined
  /** The output since the last call. */
  readonly take: () => Output
  readonly write: (text: string) => void
  readonly interrupt: () => Promise<void>
  /** Kills it, with all its children. */
  readonly end: () => Promise<void>
}

export interface Start extends Pick<Spawn, "env" | "workingDirectory"> {
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly hasTerminal: boolean
  /** Unread output that is kept of each channel. */
  readonly outputCharactersMax: number
}

export const start = async (sandbox: Sandbox, given: Start): Promise<RunningCommand> => {
  const { argv, env, hasTerminal, outputCharactersMax, workingDirectory } = given
  const input = InputQueue.make(inputBytesMax)
  const process = await sandbox.spawn(argv, { env, workingDirectory, stdin: input.readable })
  const both = OutputTail.make(outputCharactersMax)
  const tails = {
    stdout: OutputTail.make(outputCharactersMax),
    stderr: OutputTail.make(outputCharactersMax)
  }
  let code: number | undefined
  const see = (channel: "stdout" | "stderr", text: string) => {
    both.push(text)
    tails[channel].push(text)
  }
  const ended = (async () => {
    try {
      await collect(process, see)
      code = (await process.exit).exitCode
    } catch (error) {
      const failure = commandFailureOf(error)
      if (failure === undefined) throw error
      // The model reads why, after what the command has written.
      see("stderr", `\n${failure.message}\n`)
      code = failure.exitCode ?? killedCode
    } finally {
      await process[Symbol.asyncDispose]()
    }
  })()
  // It is awaited by the next call that asks, which may come later.
  ended.catch(() => undefined)
  return {
    hasTerminal,
    wait: (millis) => atMost(ended, Math.min(millis, waitMillisMax)),
    exitCode: () => code,
    take: () => ({ output: both.take(), stdout: tails.stdout.take(), stderr: tails.stderr.take() }),
    write: (text) => input.write(new TextEncoder().encode(text)),
    interrupt: () => process.kill("SIGINT"),
    end: async () => {
      await process[Symbol.asyncDispose]()
      await ended.catch(() => undefined)
    }
  }
}

/** Decodes each channel for itself, so that a character in two pieces is one. */
const collect = async (
  process: Process,
  see: (channel: "stdout" | "stderr", text: string) => void
): Promise<void> => {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  for await (const { bytes, channel } of process.output) {
    const text = decoders[channel].decode(bytes, { stream: true })
    if (text !== "") see(channel, text)
  }
  for (const channel of ["stdout", "stderr"] as const) {
    const text = decoders[channel].decode()
    if (text !== "") see(channel, text)
  }
}

const atMost = async (ended: Promise<void>, millis: number): Promise<void> => {
  const { promise: late, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, millis)
  try {
    await Promise.race([ended, late])
  } finally {
    clearTimeout(timer)
  }
}
