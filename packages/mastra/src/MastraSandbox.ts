/**
 * A sealed sandbox for a `Workspace` of Mastra: commands, background processes and files.
 *
 * Mastra's tools run on the host, and act in the sandbox. An adapter of an open sandbox leaves it to its owner. An
 * adapter with a function opens one at the first use, and closes it in `destroy`.
 */
import { Closed, type Sandbox, type SandboxError, Unsupported } from "@cogni/sandbox-promise"
import {
  type CommandResult,
  type ExecuteCommandOptions,
  type MastraFilesystem,
  MastraSandbox,
  type MastraSandboxOptions,
  type MountResult,
  type ProviderStatus,
  SandboxAbortError,
  type SandboxCloneOptions,
  SandboxError as MastraError,
  type SandboxFileInput,
  type SandboxInfo,
  type SandboxStartOptions,
  type SandboxStartResult,
  validateSandboxFileMode,
  type WorkspaceFilesystem,
  type WriteFilesOptions
} from "@mastra/core/workspace"
import { randomUUID } from "node:crypto"
import { posix } from "node:path"
import * as CommandLimits from "./internal/CommandLimits.ts"
import * as MastraErrors from "./internal/MastraErrors.ts"
import { ProcessManager } from "./internal/ProcessManager.ts"
import { SandboxFilesystem } from "./internal/SandboxFilesystem.ts"

/** A request for a new sandbox. */
export interface SandboxRequest {
  /** ID of the adapter, for labels and records. */
  readonly id: string
  /** The user for whom Mastra asked for it, if it named one. */
  readonly actingUserId: string | undefined
  readonly signal: AbortSignal | undefined
}

/** An open sandbox, or a function that opens one. */
export type SandboxSource = Sandbox | ((request: SandboxRequest) => Promise<Sandbox>)

export interface CogniSandboxOptions extends Omit<MastraSandboxOptions, "processes">, CommandLimits.Given {
  /** Default: the run ID of an open sandbox, and a random ID for a function. */
  readonly id?: string | undefined
  /** Replaces the instructions for the agent. */
  readonly instructions?: string | undefined
}

/** The sandbox of a `Workspace`. */
export interface CogniSandbox extends MastraSandbox {
  /** The workspace's files, for the file tools of the same `Workspace`. */
  readonly filesystem: MastraFilesystem
  /** Opens the sandbox if necessary, and returns it. */
  readonly opened: () => Promise<Sandbox>
  readonly processes: NonNullable<MastraSandbox["processes"]>
  readonly executeCommand: NonNullable<MastraSandbox["executeCommand"]>
  readonly writeFiles: NonNullable<MastraSandbox["writeFiles"]>
  /** A second adapter with the same function and options. Nothing is opened yet. */
  readonly clone: (options?: SandboxCloneOptions) => CogniSandbox
  readonly getInfo: () => SandboxInfo
  readonly getInstructions: () => string
}

/**
 * Offers a sandbox to Mastra: `new Workspace({ sandbox, filesystem: sandbox.filesystem })`.
 *
 * Snapshots, pauses, mounts of other filesystems and attaching to an earlier sandbox reject with `Unsupported`. There
 * is no `networking` and no `computer`, which Mastra checks for.
 */
export const mastraSandbox = (source: SandboxSource, options: CogniSandboxOptions = {}): CogniSandbox =>
  new SealedSandbox(source, options)

class SealedSandbox extends MastraSandbox implements CogniSandbox {
  readonly id: string
  readonly name = "Cogni Sandbox"
  readonly provider = "cogni-sandbox"
  status: ProviderStatus = "pending"
  /** Why the sandbox is over. */
  error?: string
  readonly filesystem: SandboxFilesystem
  declare readonly processes: ProcessManager
  readonly #source: SandboxSource
  readonly #options: CogniSandboxOptions
  readonly #limits: CommandLimits.CommandLimits
  readonly #actingUserId: string | undefined
  #sandbox: Sandbox | undefined
  /** Settles when the sandbox is open, or could not be opened. */
  #opening: Promise<void> | undefined
  #createdAt = new Date()
  #over: SandboxError | Closed | undefined

  constructor(source: SandboxSource, options: CogniSandboxOptions, actingUserId?: string) {
    const limits = CommandLimits.of(options)
    const { id, instructions: _instructions, ...base } = options
    super({
      ...base,
      name: "CogniSandbox",
      processes: new ProcessManager({ ...limits, sandbox: () => this.#ready() })
    })
    this.#options = options
    this.#limits = limits
    this.#source = source
    this.#actingUserId = actingUserId
    this.id = id ?? (typeof source === "function" ? `cogni-sandbox-${randomUUID()}` : source.runId)
    if (typeof source !== "function") this.#adopt(source)
    this.filesystem = new SandboxFilesystem(`${this.id}-files`, () => this.opened())
  }

  /** Opens the sandbox, once. One that is over is not replaced: its files would be missing without a word. */
  override async start(options: SandboxStartOptions = {}): Promise<SandboxStartResult> {
    if (this.#sandbox !== undefined || typeof this.#source !== "function") {
      this.#ready()
      return { outcome: "connected" }
    }
    await (this.#opening = this.#open(this.#source, options.abortSignal))
    return { outcome: "created" }
  }

  async opened(): Promise<Sandbox> {
    await this.ensureRunning()
    return this.#ready()
  }

  /** Rejects before Mastra changes the status, so that the sandbox remains usable. */
  override _stop(): Promise<void> {
    return this.stop()
  }

  override stop(): Promise<void> {
    return unsupported("stop", "a sealed sandbox cannot be paused. Use destroy, or let its time limit end it")
  }

  /** Ends all processes. Closes the sandbox if this adapter opened it. */
  override async destroy(): Promise<void> {
    // Mastra also waits for it, unless the caller calls this function itself.
    await this.#opening?.catch(() => undefined)
    await this.processes.killAll()
    if (this.#isOwner) await this.#sandbox?.close()
  }

  override snapshot(): Promise<void> {
    return unsupported(
      "snapshot",
      "a sandbox ends with its files. Copy files out, or use a workspace directory"
    )
  }

  override mount(filesystem: WorkspaceFilesystem, mountPath: string): Promise<MountResult> {
    if (filesystem === this.filesystem && posix.resolve(mountPath) === this.#ready().workspace) {
      return Promise.resolve({ success: true, mountPath })
    }
    return unsupported(
      "mount",
      `commands cannot reach ${filesystem.provider}, because the sandbox has no network. File tools can, from the host`
    )
  }

  override unmount(): Promise<void> {
    return unsupported("unmount", "nothing is mounted into a sealed sandbox")
  }

  override async executeCommand(
    command: string,
    args: Array<string> = [],
    options: ExecuteCommandOptions = {}
  ): Promise<CommandResult> {
    const { outputBytesMax, timeoutSecondsMax } = this.#limits
    const line = [command, ...args.map(quoted)].join(" ")
    const handle = await this.processes.spawn(line, {
      ...options,
      timeout: Math.min(options.timeout ?? Number.POSITIVE_INFINITY, timeoutSecondsMax * 1000),
      outputBytesMax,
      stdinMode: "ignore"
    })
    try {
      return { ...(await handle.wait()), command: line }
    } finally {
      this.processes.release(handle.pid)
    }
  }

  /** Writes files of the workspace. Each is replaced as a whole. */
  override async writeFiles(files: Array<SandboxFileInput>, options: WriteFilesOptions = {}): Promise<void> {
    const { abortSignal: signal } = options
    for (const { mode } of files) if (mode !== undefined) validateSandboxFileMode(mode)
    const sandbox = await this.opened()
    try {
      for (const { content, mode, path } of files) {
        await sandbox.files.write(path, content, { signal })
        if (mode !== undefined) await changeMode(sandbox, path, mode, signal)
      }
    } catch (error) {
      if (signal?.aborted === true) throw new SandboxAbortError("writeFiles", signal.reason)
      throw MastraErrors.ofSandbox(error)
    }
  }

  clone(options: SandboxCloneOptions = {}): CogniSandbox {
    const { actingUserId, env, id, workingDirectory, ...others } = options
    for (const [name, value] of Object.entries(others)) {
      if (value !== undefined) {
        throw new Unsupported({
          operation: `clone with ${name}`,
          reason: "each sandbox is new, and ends with its own time limit. Leave the option out"
        })
      }
    }
    if (typeof this.#source !== "function") {
      throw new Unsupported({
        operation: "clone",
        reason: "this sandbox was opened by its owner. Give mastraSandbox a function that opens one"
      })
    }
    const { id: _own, ...inherited } = this.#options
    return new SealedSandbox(
      this.#source,
      {
        ...inherited,
        ...(id === undefined ? {} : { id }),
        ...(env === undefined ? {} : { env }),
        ...(workingDirectory === undefined ? {} : { workingDirectory })
      },
      actingUserId
    )
  }

  override getInfo(): SandboxInfo {
    const { id, name, provider, status } = this
    return {
      id,
      name,
      provider,
      status,
      createdAt: this.#createdAt,
      metadata: {
        ...(this.#sandbox && { runId: this.#sandbox.runId, workspace: this.#sandbox.workspace })
      }
    }
  }

  override getInstructions(): string {
    return (
      this.#options.instructions ??
      [
        "Commands run in a sealed Linux sandbox, with /bin/sh and without root rights.",
        `They start in ${this.workingDirectory ?? this.#sandbox?.workspace ?? "/workspace"}, and have no access to the internet.`,
        `A command is ended after ${this.#limits.timeoutSecondsMax} seconds. Use a background process for more.`
      ].join(" ")
    )
  }

  get #isOwner(): boolean {
    return typeof this.#source === "function"
  }

  async #open(
    source: Extract<SandboxSource, (request: never) => unknown>,
    signal: AbortSignal | undefined
  ): Promise<void> {
    try {
      this.#adopt(await source({ id: this.id, actingUserId: this.#actingUserId, signal }))
    } catch (error) {
      throw MastraErrors.ofSandbox(error)
    }
  }

  #adopt(sandbox: Sandbox): void {
    this.#sandbox = sandbox
    this.#createdAt = new Date()
    void this.#noteEnd(sandbox)
  }

  async #noteEnd(sandbox: Sandbox): Promise<void> {
    this.#over = (await sandbox.ended) ?? new Closed({ what: "sandbox" })
    if (this.status === "destroying" || this.status === "destroyed") return
    this.status = "error"
    this.error = this.#over.message
    // Its container and its files would stay until the host closes. A failure is reported by `destroy`.
    if (this.#isOwner) await sandbox.close().catch(() => undefined)
  }

  #ready(): Sandbox {
    if (this.#over !== undefined) {
      throw Object.assign(
        new MastraError(`the sandbox is over, with its files: ${this.#over.message}`, "NOT_READY"),
        { cause: this.#over }
      )
    }
    if (this.#sandbox === undefined) throw new MastraError(`sandbox ${this.id} is not open yet`, "NOT_READY")
    return this.#sandbox
  }
}

const unsupported = (operation: string, reason: string): Promise<never> =>
  Promise.reject(new Unsupported({ operation, reason }))

/** One argument of a shell line. */
const quoted = (argument: string): string => `'${argument.replaceAll("'", String.raw`'\''`)}'`

const changeMode = async (
  sandbox: Sandbox,
  path: string,
  mode: number,
  signal: AbortSignal | undefined
): Promise<void> => {
  const { exitCode, stderr } = await sandbox.exec(["chmod", mode.toString(8), "--", path], { signal })
  if (exitCode !== 0) {
    throw new MastraError(
      `chmod of ${path} failed with exit code ${exitCode}: ${stderr.trim()}`,
      "EXECUTION_FAILED"
    )
  }
}
