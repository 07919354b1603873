/**
 * A backend of deepagents whose commands and files are those of an open, sealed sandbox.
 *
 * The framework implements its file tools with commands (`find`, `grep`, `awk`) and copies of whole files. This module
 * gives it both. The sandbox belongs to its caller, and other code can use it at the same time.
 */
import { type CommandFailure, commandFailureOf } from "@cogni/sandbox-promise/Failure"
import type { ExecEnd, Sandbox } from "@cogni/sandbox-promise/Sandbox"
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
  readonly outputRetainedBytesMax?: number | undefined
}

/** A backend for `createDeepAgent`. Its `id` is the sandbox's run ID. */
export interface DeepAgentsBackend extends BaseSandbox {
  /** False when the sandbox is over: closed, or ended by one of its limits. */
  readonly isRunning: boolean
}

const timeoutSecondsDefault = 120

const outputRetainedBytesDefault = 32 * 1024

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

class AgentBackend extends BaseSandbox implements DeepAgentsBackend {
  readonly id: string
  readonly #sandbox: Sandbox
  readonly #timeoutSecondsMax: number
  readonly #outputRetainedBytesMax: number
  #isOver = false

  constructor(sandbox: Sandbox, options: DeepAgentsOptions) {
    super()
    this.id = sandbox.runId
    this.#sandbox = sandbox
    this.#timeoutSecondsMax = positive(
      "timeoutSecondsMax",
      options.timeoutSecondsMax ?? timeoutSecondsDefault
    )
    this.#outputRetainedBytesMax = positive(
      "outputRetainedBytesMax",
      options.outputRetainedBytesMax ?? outputRetainedBytesDefault
    )
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
    const outcome = await this.#run(command, this.#outputRetainedBytesMax)
    return "failure" in outcome ? CommandReport.ofFailure(outcome.failure) : CommandReport.ofEnd(outcome.end)
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

  override ls(path: string): Promise<LsResult> {
    return this.#tool(async (tool) => {
      const found = await tool.ls(path)
      return tool.isCut
        ? { error: `${path} has too many entries for one listing. Use a command, such as find with head` }
        : found
    })
  }

  override read(filePath: string, offset?: number, limit?: number): Promise<ReadResult> {
    return this.#tool((tool) => tool.read(filePath, offset, limit))
  }

  override grep(
    pattern: string,
    path?: string,
    glob?: string | null,
    maxCount?: number | null
  ): Promise<GrepResult> {
    return this.#tool(async (tool) => {
      const found = await tool.grep(pattern, path, glob, maxCount)
      return tool.isCut ? { ...found, truncated: true } : found
    })
  }

  override glob(pattern: string, path?: string): Promise<GlobResult> {
    return this.#tool((tool) => tool.glob(pattern, path))
  }

  override delete(filePath: string): Promise<DeleteResult> {
    return this.#tool((tool) => tool.delete(filePath))
  }

  /**
   * Runs one of the framework's file tools, which are commands. The framework ignores how they end: it would take part
   * of a listing for all of it, and a file that was not read in time for one that does not exist.
   */
  async #tool<A>(use: (tool: FileTool) => Promise<A>): Promise<A | { readonly error: string }> {
    const tool = new FileTool(this, (command) => this.#run(command))
    const result = await use(tool)
    return tool.failure === undefined ? result : { error: tool.failure.message }
  }

  async #run(command: string, outputRetainedBytesMax?: number): Promise<Outcome> {
    try {
      const timeoutSecondsMax = this.#timeoutSecondsMax
      return { end: await this.#sandbox.exec(command, { timeoutSecondsMax, outputRetainedBytesMax }) }
    } catch (error) {
      const failure = commandFailureOf(error)
      if (failure === undefined) throw over(commandFailed, error)
      return { failure }
    }
  }

  async #copied<A>(copy: Promise<FileTransfer.Copied<A>>): Promise<FileTransfer.Copied<A>> {
    try {
      return await copy
    } catch (error) {
      throw over(fileFailed, error)
    }
  }
}

type Outcome = { readonly end: ExecEnd } | { readonly failure: CommandFailure }

/** One use of a file tool. Its output is bounded by the sandbox's own limit, which fits listings and files. */
class FileTool extends BaseSandbox {
  readonly id: string
  readonly #backend: BaseSandbox
  readonly #run: (command: string) => Promise<Outcome>
  /** How its command failed. */
  failure: CommandFailure | undefined
  /** Whether the end of its command's output is missing. */
  isCut = false

  constructor(backend: BaseSandbox, run: (command: string) => Promise<Outcome>) {
    super()
    this.id = backend.id
    this.#backend = backend
    this.#run = run
  }

  override async execute(command: string): Promise<ExecuteResponse> {
    const outcome = await this.#run(command)
    if ("failure" in outcome) {
      this.failure = outcome.failure
      return CommandReport.ofFailure(outcome.failure)
    }
    const report = CommandReport.ofEnd(outcome.end)
    if (report.truncated) this.isCut = true
    return report
  }

  override uploadFiles(files: Array<[string, Uint8Array]>): Promise<Array<FileUploadResponse>> {
    return Promise.resolve(this.#backend.uploadFiles(files))
  }

  override downloadFiles(paths: Array<string>): Promise<Array<FileDownloadResponse>> {
    return Promise.resolve(this.#backend.downloadFiles(paths))
  }
}

const positive = (name: string, value: number): number => {
  if (value > 0) return value
  throw new RangeError(`${name} is ${value}. Give a positive number, or leave it out`)
}
