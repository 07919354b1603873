/** Processes of one sandbox. Their number is limited, and so is the output that is kept of each. */
import type { Sandbox } from "@cogni/sandbox-promise"
import {
  type MastraSandbox,
  type ProcessInfo,
  SandboxError,
  SandboxProcessManager,
  type SpawnProcessOptions
} from "@mastra/core/workspace"
import type { CommandLimits } from "./CommandLimits.ts"
import * as CommandInput from "./CommandInput.ts"
import * as MastraErrors from "./MastraErrors.ts"
import { SandboxProcess } from "./SandboxProcess.ts"

export interface ManagerOptions extends Pick<CommandLimits, "processesMax" | "outputRetainedBytesMax"> {
  /** The sandbox, which is open when this is called. */
  readonly sandbox: () => Sandbox
}

/** A background process may write without limit, since only its newest output is kept. */
export interface SpawnOptions extends SpawnProcessOptions {
  readonly outputBytesMax?: number
}

export class ProcessManager extends SandboxProcessManager<MastraSandbox> {
  readonly #options: ManagerOptions
  #pids = 0
  #starting = 0
  /** Times that all processes were ended. */
  #ends = 0

  constructor(options: ManagerOptions) {
    super()
    this.#options = options
  }

  override async spawn(command: string, options: SpawnOptions = {}): Promise<SandboxProcess> {
    const timeoutMsMax = delay(options.timeout)
    this.#makeRoom()
    this.#starting++
    const ends = this.#ends
    try {
      const sandbox = this.#options.sandbox()
      const input = options.stdinMode === "ignore" ? undefined : CommandInput.make()
      const running = await sandbox
        .spawn(command, {
          env: defined(options.env),
          workingDirectory: below(sandbox.workspace, options.cwd, this.sandbox.workingDirectory),
          stdin: input?.bytes
        })
        .catch((error: unknown) => {
          throw MastraErrors.ofSandbox(error)
        })
      if (ends !== this.#ends) {
        await running[Symbol.asyncDispose]()
        throw new SandboxError(
          "the sandbox was destroyed while the process started, so the process was ended",
          "NOT_READY"
        )
      }
      // Mastra counts with numbers of the system. Those from inside the sandbox mean nothing outside.
      const handle = new SandboxProcess(running, input, {
        ...(options.onStdout && { onStdout: options.onStdout }),
        ...(options.onStderr && { onStderr: options.onStderr }),
        pid: String(++this.#pids),
        maxRetainedBytes: Math.min(
          options.maxRetainedBytes ?? this.#options.outputRetainedBytesMax,
          this.#options.outputRetainedBytesMax
        ),
        timeoutMsMax,
        outputBytesMax: options.outputBytesMax ?? Number.POSITIVE_INFINITY
      })
      this._tracked.set(handle.pid, handle)
      return handle
    } finally {
      this.#starting--
    }
  }

  override list(): Promise<Array<ProcessInfo>> {
    return Promise.resolve(
      [...this._tracked.values()].map(({ command, exitCode, pid }) => ({
        pid,
        running: exitCode === undefined,
        ...(command === undefined ? {} : { command }),
        ...(exitCode === undefined ? {} : { exitCode })
      }))
    )
  }

  /** Mastra also remembers each released ID, for those that return. Ours never do. */
  override release(pid: string): void {
    this._tracked.delete(pid)
  }

  /** Ends all of them, also those that are being started, and waits until they have ended. */
  async killAll(): Promise<void> {
    this.#ends++
    const running = [...this._tracked.values()]
    await Promise.all(running.map((handle) => handle.kill()))
    await Promise.allSettled(running.map((handle) => handle.wait()))
    this._tracked.clear()
  }

  /** Forgets the oldest process that has ended, if there are as many as there may be. */
  #makeRoom(): void {
    const { processesMax } = this.#options
    this._dismissed.clear()
    if (this._tracked.size + this.#starting < processesMax) return
    for (const { exitCode, pid } of this._tracked.values()) {
      if (exitCode !== undefined) {
        this._tracked.delete(pid)
        return
      }
    }
    throw new SandboxError(
      `${processesMax} processes are running, which is the limit. Kill one of them, or wait until one has ended`,
      "PROCESS_LIMIT",
      { processesMax }
    )
  }
}

/** The longest time that a timer can wait. */
const delayMsMax = 2 ** 31 - 1

const delay = (timeoutMs: number | undefined): number | undefined => {
  if (timeoutMs === undefined) return undefined
  if (timeoutMs > 0) return Math.min(timeoutMs, delayMsMax)
  throw new SandboxError(
    `a time limit of ${timeoutMs} ms is not positive. Leave it out, or give one`,
    "INVALID_ARGUMENT"
  )
}

const defined = (env: SpawnProcessOptions["env"]): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(env ?? {}).filter((entry): entry is [string, string] => entry[1] !== undefined)
  )

/** Relative directories are those of the sandbox's working directory, and that one's of the workspace. */
const below = (...directories: ReadonlyArray<string | undefined>): string | undefined => {
  const [workspace = "", cwd, workingDirectory] = directories
  return [workingDirectory, cwd].reduce<string>(
    (base, directory) =>
      directory === undefined ? base : directory.startsWith("/") ? directory : `${base}/${directory}`,
    workspace
  )
}
