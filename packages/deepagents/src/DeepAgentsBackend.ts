/**
 * A backend of deepagents whose commands and files are those of an open, sealed sandbox.
 *
 * The framework implements its file tools with commands (`find`, `grep`, `awk`) and copies of whole files. This module
 * gives it both. The sandbox belongs to its caller, and other code can use it at the same time.
 */
import type { Sandbox } from "@cogni/sandbox-promise/Sandbox"
import { SandboxError } from "@cogni/sandbox-promise/SandboxHost"
import {
  BaseSandbox,
  type DeleteResult,
  type ExecuteResponse,
  type FileDownloadResponse,
  type FileUploadResponse,
  type GlobResult,
  type GrepResult,
  type LsResult,
  type ReadResult,
  SandboxError as BackendError
} from "deepagents"
import * as CommandReport from "./internal/CommandReport.ts"
import * as FileTransfer from "./internal/FileTransfer.ts"

export interface DeepAgentsOptions {
  /**
   * Time limit of one command, in seconds (default 120). A command that takes longer is ended with all its children.
   * The agent gets its output so far, exit code 124 and the reason.
   */
  readonly timeoutSecondsMax?: number | undefined
  /**
   * Bytes of each of stdout and stderr that the agent sees of one command (default 32 KiB). The rest is cut off, and
   * the agent is informed. The framework tries to move more than 80,000 characters to `/large_tool_results`, which a
   * sandbox with a read-only root does not have.
   */
  readonly outputBytesMax?: number | undefined
}

/** A backend for `createDeepAgent`. Its `id` is the sandbox's run ID. */
export interface DeepAgentsBackend extends BaseSandbox {
  /** False when the sandbox is over: closed, or ended by one of its limits. */
  readonly isRunning: boolean
}

const timeoutSecondsDefault = 120

const outputBytesDefault = 32 * 1024

/**
 * Creates a backend over an open sandbox. Closing the sandbox ends its commands.
 *
 * A command that breaks a limit is a result that the agent sees. When the sandbox itself is over, calls reject with the
 * framework's `SandboxError`, whose `cause` is ours.
 */
export const deepAgentsBackend = (sandbox: Sandbox, options: DeepAgentsOptions = {}): DeepAgentsBackend =>
  new AgentBackend(sandbox, options)

const commandFailed = "COMMAND_FAILED"

const fileFailed = "FILE_OPERATION_FAILED"

/** The framework's error, with ours as its cause. */
const over = (code: string, cause: unknown): BackendError =>
  new BackendError(
    cause instanceof Error ? cause.message : String(cause),
    code,
    cause instanceof Error ? cause : undefined
  )

/** Runs commands whose output is bounded by the sandbox's own limit, which fits listings and whole files. */
class FileBackend extends BaseSandbox implements DeepAgentsBackend {
  readonly id: string
  readonly #sandbox: Sandbox
  readonly #timeoutSecondsMax: number
  readonly #outputBytesMax: number | undefined
  #isOver = false

  constructor(sandbox: Sandbox, timeoutSecondsMax: number, outputBytesMax?: number) {
    super()
    this.id = sandbox.runId
    this.#sandbox = sandbox
    this.#timeoutSecondsMax = timeoutSecondsMax
    this.#outputBytesMax = outputBytesMax
    void this.#noteEnd()
  }

  async #noteEnd(): Promise<void> {
    await this.#sandbox.ended
    this.#isOver = true
  }

  get isRunning(): boolean {
    return !this.#isOver
  }

  override async execute(command: string): Promise<ExecuteResponse> {
    try {
      const end = await this.#sandbox.exec(command, {
        timeoutSecondsMax: this.#timeoutSecondsMax,
        outputRetainedBytesMax: this.#outputBytesMax
      })
      return CommandReport.ofEnd(end)
    } catch (error) {
      const report = error instanceof SandboxError ? CommandReport.ofError(error) : undefined
      if (report === undefined) throw over(commandFailed, error)
      return report
    }
  }

  override async uploadFiles(files: Array<[string, Uint8Array]>): Promise<Array<FileUploadResponse>> {
    const responses: Array<FileUploadResponse> = []
    for (const [path, content] of files) {
      const copied = await this.#copied(
        FileTransfer.write(this.#sandbox, path, content, this.#timeoutSecondsMax)
      )
      responses.push({ path, error: "error" in copied ? copied.error : null })
    }
    return responses
  }

  override async downloadFiles(paths: Array<string>): Promise<Array<FileDownloadResponse>> {
    const responses: Array<FileDownloadResponse> = []
    for (const path of paths) {
      const copied = await this.#copied(FileTransfer.read(this.#sandbox, path, this.#timeoutSecondsMax))
      responses.push(
        "error" in copied
          ? { path, content: null, error: copied.error }
          : { path, content: copied.value, error: null }
      )
    }
    return responses
  }

  async #copied<A>(copy: Promise<FileTransfer.Copied<A>>): Promise<FileTransfer.Copied<A>> {
    try {
      return await copy
    } catch (error) {
      throw over(fileFailed, error)
    }
  }
}

/** The agent's own commands show less output than those with which the framework implements its file tools. */
class AgentBackend extends FileBackend {
  readonly #files: FileBackend

  constructor(sandbox: Sandbox, options: DeepAgentsOptions) {
    const timeoutSecondsMax = options.timeoutSecondsMax ?? timeoutSecondsDefault
    super(sandbox, timeoutSecondsMax, options.outputBytesMax ?? outputBytesDefault)
    this.#files = new FileBackend(sandbox, timeoutSecondsMax)
  }

  override ls(path: string): Promise<LsResult> {
    return this.#files.ls(path)
  }

  override read(filePath: string, offset?: number, limit?: number): Promise<ReadResult> {
    return this.#files.read(filePath, offset, limit)
  }

  override grep(
    pattern: string,
    path?: string,
    glob?: string | null,
    maxCount?: number | null
  ): Promise<GrepResult> {
    return this.#files.grep(pattern, path, glob, maxCount)
  }

  override glob(pattern: string, path?: string): Promise<GlobResult> {
    return this.#files.glob(pattern, path)
  }

  override delete(filePath: string): Promise<DeleteResult> {
    return this.#files.delete(filePath)
  }
}
