/** A session of the SDK over an open sandbox. */
import { fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import { type Sandbox, Unsupported } from "@cogni/sandbox-promise"
import { fileProblemOf, refusedCode } from "@cogni/sandbox-promise/Failure"
import type { Editor, ToolOutputImage } from "@openai/agents-core"
import {
  type ExecCommandArgs,
  type ExposedPortEndpoint,
  type ListDirectoryArgs,
  Manifest,
  type MaterializeEntryArgs,
  type ReadFileArgs,
  type SandboxArchiveLimits,
  type SandboxDirectoryEntry,
  type SandboxExecResult,
  SandboxLifecycleError,
  type SandboxSession,
  SandboxWorkspaceReadNotFoundError,
  validateSandboxArchiveLimits,
  type ViewImageArgs,
  type WorkspaceArchiveData,
  type WorkspaceArchiveOptions,
  WorkspacePathPolicy,
  type WriteStdinArgs
} from "@openai/agents-core/sandbox"
import {
  formatExecResponse,
  imageOutputFromBytes,
  MAX_VIEW_IMAGE_BYTES,
  mergeManifestDelta,
  toUint8Array,
  withExclusiveSandboxManifestMutation
} from "@openai/agents-core/sandbox/internal"
import * as ManifestFiles from "./ManifestFiles.ts"
import * as PatchEditor from "./PatchEditor.ts"
import * as SessionCommands from "./SessionCommands.ts"
import type { SessionState } from "./SessionState.ts"
import * as WorkspaceArchive from "./WorkspaceArchive.ts"

interface SessionOptions {
  readonly shell: string
  readonly outputCharactersMax: number
  readonly archiveBytesMax: number
  readonly archiveLimits: SandboxArchiveLimits | null | undefined
  readonly localSources: ReadonlyArray<string>
  /** Whether the workspace is a directory of the host, which is never emptied. */
  readonly isHostDirectory: boolean
  readonly readOnlyName: WorkspaceArchive.ReadOnlyName
  /** Runs once, when the session closes. */
  readonly onClose: () => void
}

/** A class, because the SDK replaces methods of a session to run hooks before it stops. */
export class AgentSession implements SandboxSession<SessionState> {
  state: SessionState
  readonly #sandbox: Sandbox
  readonly #options: SessionOptions
  readonly #commands: SessionCommands.SessionCommands
  readonly #paths: WorkspacePathPolicy
  #archiveLimits: SandboxArchiveLimits | null | undefined
  #isOver = false
  #closing: Promise<void> | undefined

  constructor(sandbox: Sandbox, state: SessionState, options: SessionOptions) {
    this.state = state
    this.#sandbox = sandbox
    this.#options = options
    this.#archiveLimits = options.archiveLimits
    this.#paths = new WorkspacePathPolicy({ root: sandbox.workspace })
    this.#commands = SessionCommands.make(sandbox, {
      shell: options.shell,
      outputCharactersMax: options.outputCharactersMax,
      environment: () => this.state.environment,
      directory: (path) => this.#paths.resolve(path).path
    })
    void this.#noteEnd()
  }

  async #noteEnd(): Promise<void> {
    await this.#sandbox.ended
    this.#isOver = true
  }

  /** False when the sandbox is over: closed, or ended by one of its limits. */
  get isRunning(): boolean {
    return !this.#isOver && this.#closing === undefined
  }

  running(): Promise<boolean> {
    return Promise.resolve(this.isRunning)
  }

  /** A session is started when it exists. One that is over does not start again. */
  async start(): Promise<void> {
    if (this.isRunning) return
    throw new SandboxLifecycleError(
      "The sandbox of this session is over, and does not start again. Resume its state, or create a new session."
    )
  }

  /** Kills the commands. The sandbox and its files stay. */
  stop(): Promise<void> {
    return this.#commands.endAll()
  }

  shutdown(): Promise<void> {
    return this.close()
  }

  delete(): Promise<void> {
    return this.close()
  }

  /** Removes the sandbox and its files. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.#options.onClose()
    // Also ends the commands.
    await this.#sandbox.close()
  }

  exec(args: ExecCommandArgs): Promise<SandboxExecResult> {
    return this.#asAgent("exec", args.runAs, () => this.#commands.exec(args))
  }

  /** The model reads the result, so it also learns why a command was refused or ended. */
  execCommand(args: ExecCommandArgs): Promise<string> {
    return this.#said(async () => formatExecResponse(await this.exec(args)))
  }

  writeStdin(args: WriteStdinArgs): Promise<string> {
    return this.#said(() => this.#commands.writeStdin(args))
  }

  /** Rejects for what a model cannot change: the sandbox is over, or cannot do this at all. */
  async #said(ask: () => Promise<string>): Promise<string> {
    try {
      return await ask()
    } catch (error) {
      if (!this.isRunning || error instanceof Unsupported || !(error instanceof Error)) throw error
      return formatExecResponse({ output: error.message, wallTimeSeconds: 0, exitCode: refusedCode })
    }
  }

  supportsPty(): boolean {
    return true
  }

  createEditor(runAs?: string): Editor {
    requireAgent("createEditor", runAs)
    return PatchEditor.make(this.#sandbox, (path) => this.#at(path))
  }

  readFile({ maxBytes, path, runAs }: ReadFileArgs): Promise<Uint8Array> {
    return this.#asAgent("readFile", runAs, async () => {
      const found = this.#at(path)
      if (maxBytes === undefined) return await this.#read(path)
      const bytes = await this.#read(path).catch(async (error: unknown) => {
        if (fileProblemOf(error) !== "too_large" || maxBytes > fileBytesMax) throw error
        return await this.#readStart(found, maxBytes)
      })
      return bytes.subarray(0, maxBytes)
    })
  }

  async #read(path: string): Promise<Uint8Array> {
    try {
      return await this.#sandbox.files.read(this.#at(path))
    } catch (error) {
      if (fileProblemOf(error) !== "not_found") throw error
      throw Object.assign(new SandboxWorkspaceReadNotFoundError(`${path} was not found.`, { path }), {
        cause: error
      })
    }
  }

  /** The beginning of a file that is too large to be read whole. */
  async #readStart(path: string, bytesMax: number): Promise<Uint8Array> {
    const all = new Uint8Array(bytesMax)
    let at = 0
    await using process = await this.#sandbox.spawn(["head", "-c", String(bytesMax), "--", path])
    for await (const { bytes, channel } of process.output) {
      if (channel === "stderr") continue
      all.set(bytes.subarray(0, bytesMax - at), at)
      at = Math.min(bytesMax, at + bytes.byteLength)
    }
    return all.subarray(0, at)
  }

  viewImage({ path, runAs }: ViewImageArgs): Promise<ToolOutputImage> {
    return this.#asAgent("viewImage", runAs, async () => {
      const found = await this.#sandbox.files.stat(this.#at(path))
      // The SDK recognizes these words, and tells the model.
      if (found === undefined) throw new SandboxWorkspaceReadNotFoundError(`Image file not found: ${path}`)
      if (found.type !== "file") {
        throw new SandboxWorkspaceReadNotFoundError(`Image path is not a file: ${path}`)
      }
      if (found.bytes > MAX_VIEW_IMAGE_BYTES) {
        throw new SandboxWorkspaceReadNotFoundError(`Image file exceeds the 10 MB limit: ${path}`)
      }
      return imageOutputFromBytes(path, await this.#read(path))
    })
  }

  listDir({ path, runAs }: ListDirectoryArgs): Promise<Array<SandboxDirectoryEntry>> {
    return this.#asAgent("listDir", runAs, async () => {
      const { path: at, workspaceRelativePath = "" } = this.#paths.resolve(path)
      const entries = await this.#sandbox.files.list(at)
      return entries.map(({ name, type }) => ({
        name,
        path: workspaceRelativePath === "" ? name : `${workspaceRelativePath}/${name}`,
        type: type === "directory" ? "dir" : type === "file" ? "file" : "other"
      }))
    })
  }

  pathExists(path: string, runAs?: string): Promise<boolean> {
    return this.#asAgent("pathExists", runAs, async () => (await this.#typeOf(path)) !== undefined)
  }

  directoryExists(path: string, runAs?: string): Promise<boolean> {
    return this.#asAgent("directoryExists", runAs, async () => (await this.#typeOf(path)) === "directory")
  }

  async #typeOf(path: string): Promise<string | undefined> {
    try {
      return (await this.#sandbox.files.stat(this.#at(path)))?.type
    } catch (error) {
      // Below a file, there is nothing.
      if (fileProblemOf(error) === "not_a_directory") return undefined
      throw error
    }
  }

  materializeEntry({ entry, path, runAs }: MaterializeEntryArgs): Promise<void> {
    return this.#asAgent("materializeEntry", runAs, async () => {
      const { workspaceRelativePath = "" } = this.#paths.resolve(path)
      const entries = { [workspaceRelativePath]: entry }
      await this.applyManifest(new Manifest({ root: this.state.manifest.root, entries }))
    })
  }

  applyManifest(manifest: Manifest, runAs?: string): Promise<void> {
    return this.#asAgent("applyManifest", runAs, () =>
      withExclusiveSandboxManifestMutation(this.state, async () => {
        ManifestFiles.check(manifest)
        const environment = await manifest.resolveEnvironment()
        await ManifestFiles.materialize(this.#sandbox, manifest, this.#options.localSources)
        this.state.environment = { ...this.state.environment, ...environment }
        this.state.manifest = mergeManifestDelta(this.state.manifest, manifest)
      })
    )
  }

  /** Makes a tar archive, without the entries that are ephemeral. */
  persistWorkspace(): Promise<Uint8Array> {
    const excluded = [...this.state.manifest.ephemeralPersistencePaths()]
    return WorkspaceArchive.persist(
      this.#sandbox,
      excluded,
      this.#options.readOnlyName,
      this.#limits(undefined)
    )
  }

  /** Replaces the workspace by a tar archive. */
  async hydrateWorkspace(data: WorkspaceArchiveData, options: WorkspaceArchiveOptions = {}): Promise<void> {
    validateSandboxArchiveLimits(options.archiveLimits)
    if (this.#options.isHostDirectory) {
      throw new Unsupported({
        operation: "hydrateWorkspace",
        reason:
          "the workspace is a directory of the host, whose files it would replace. Create a new session, which has those files"
      })
    }
    const limits = this.#limits(options.archiveLimits)
    await WorkspaceArchive.hydrate(
      this.#sandbox,
      await toUint8Array(data),
      this.#options.readOnlyName,
      limits
    )
  }

  setArchiveLimits(limits?: SandboxArchiveLimits | null): void {
    validateSandboxArchiveLimits(limits)
    this.#archiveLimits = limits
  }

  #limits(given: SandboxArchiveLimits | null | undefined): WorkspaceArchive.Limits {
    const { archiveBytesMax } = this.#options
    return { archiveBytesMax, given: given === undefined ? this.#archiveLimits : given }
  }

  resolveExposedPort(port: number): Promise<ExposedPortEndpoint> {
    return Promise.reject(
      new Unsupported({
        operation: `resolveExposedPort(${port})`,
        reason:
          "a sandbox has no network, so the host cannot reach a port. Ask the server from a command inside"
      })
    )
  }

  #at(path: string): string {
    return this.#paths.resolve(path).path
  }

  async #asAgent<A>(operation: string, runAs: string | undefined, use: () => Promise<A>): Promise<A> {
    requireAgent(operation, runAs)
    return await use()
  }
}

const requireAgent = (operation: string, runAs: string | undefined): void => {
  if (runAs === undefined || runAs.trim() === "") return
  throw new Unsupported({
    operation: `${operation} with runAs`,
    reason: "a sandbox has one user, which cannot become another. Leave out runAs"
  })
}
