/**
 * A sandbox client of the OpenAI Agents SDK, whose sessions are open, sealed sandboxes.
 *
 * The SDK's loop stays on the host. A state of a session can be stored as JSON. It is resumed in a sandbox that still
 * runs, or in a new one with the files of its snapshot.
 */
import { type SandboxHost, type SandboxOptions, Unsupported } from "@cogni/sandbox-promise"
import {
  Manifest,
  normalizeSandboxClientCreateArgs,
  type SandboxArchiveLimits,
  type SandboxClient,
  type SandboxClientCreateArgs,
  type SandboxClientResumeOptions,
  SandboxConfigurationError,
  SandboxSnapshotNotRestorableError,
  SandboxSnapshotPersistError,
  type SnapshotSpec,
  validateSandboxArchiveLimits
} from "@openai/agents-core/sandbox"
import { AgentSession } from "./internal/AgentSession.ts"
import * as ManifestFiles from "./internal/ManifestFiles.ts"
import * as SessionState from "./internal/SessionState.ts"
import * as Snapshots from "./internal/Snapshots.ts"
import * as WorkspaceArchive from "./internal/WorkspaceArchive.ts"

/** Options of one session, which the SDK passes from the configuration of a run. */
export interface SandboxCreateOptions extends Record<string, unknown> {
  /** Replaces members of the client's `sandbox`. */
  readonly sandbox?: SandboxOptions | undefined
}

export interface SandboxClientOptions {
  /** Opens the sandboxes. Closing it ends all sessions. */
  readonly host: Pick<SandboxHost, "createSandbox">
  /** The spec of each sandbox: image, limits, model. */
  readonly sandbox?: SandboxOptions | undefined
  /**
   * Where workspaces are stored when a state is serialized: `{ type: "local", baseDir }` for a host directory, `{ type:
   * "remote", store }` for a store of yours. Without one, a state can only be resumed while its sandbox runs.
   */
  readonly snapshot?: SnapshotSpec | undefined
  /** Host directories from which `localDir` and `localFile` of a manifest may copy. Without any, none. */
  readonly localSources?: ReadonlyArray<string> | undefined
  /** Bytes of an archive of a workspace, which the host has in memory (default 256 MiB). */
  readonly archiveBytesMax?: number | undefined
  /** Characters of unread output that are kept of each command (default 262,144). The oldest are dropped. */
  readonly outputCharactersMax?: number | undefined
  /** Shell of commands that do not name one (default `/bin/bash`). */
  readonly shell?: string | undefined
}

const archiveBytesDefault = 256 * 1024 * 1024

const outputCharactersDefault = 256 * 1024

/** The SDK's client, with every member that a session needs, and complete sessions. */
export interface SealedSandboxClient extends SandboxClient<SandboxCreateOptions, SessionState.SessionState> {
  create(
    args?: SandboxClientCreateArgs<SandboxCreateOptions> | Manifest,
    options?: SandboxCreateOptions
  ): Promise<AgentSession>
  /** Returns JSON. Stores the workspace first, if the client has a `snapshot`. */
  serializeSessionState(state: SessionState.SessionState): Promise<Record<string, unknown>>
  /** Checks a serialized state, which is not trusted. */
  deserializeSessionState(state: Record<string, unknown>): Promise<SessionState.SessionState>
  /** Returns the session itself while it is open, and else one with the files of the snapshot. */
  resume(
    state: SessionState.SessionState,
    options?: SandboxClientResumeOptions<SandboxCreateOptions>
  ): Promise<AgentSession>
  /** Closes the session, and removes its snapshot. */
  delete(state: SessionState.SessionState): Promise<void>
}

/** Creates a client for the option `sandbox.client` of a run. */
export const sandboxClient = (options: SandboxClientOptions): SealedSandboxClient => {
  const { host, localSources = [], shell = "/bin/bash", snapshot } = options
  const archiveBytesMax = positive("archiveBytesMax", options.archiveBytesMax ?? archiveBytesDefault)
  const outputCharactersMax = positive(
    "outputCharactersMax",
    options.outputCharactersMax ?? outputCharactersDefault
  )
  const storeOfClient = Snapshots.of(snapshot, archiveBytesMax)
  const live = new Map<string, Live>()

  const open = async (
    given: {
      readonly sandbox: SandboxOptions | undefined
      readonly store: Snapshots.SnapshotStore | undefined
    },
    archiveLimits: SandboxArchiveLimits | null | undefined,
    state: SessionState.SessionState,
    prepare: (session: AgentSession) => Promise<void>
  ): Promise<AgentSession> => {
    const spec = { ...options.sandbox, ...given.sandbox }
    const sandbox = await host.createSandbox(spec)
    const { sessionId } = state
    const session = new AgentSession(sandbox, state, {
      shell,
      outputCharactersMax,
      archiveBytesMax,
      archiveLimits,
      localSources,
      isHostDirectory: spec.workspace?.type === "directory",
      readOnlyName: spec.memory === true ? undefined : WorkspaceArchive.inputsName,
      onClose: () => live.delete(sessionId)
    })
    live.set(sessionId, { session, store: given.store, stored: undefined })
    // The SDK may have dropped the session. Its container and its files would stay until the host closes.
    void sandbox.ended.then(() => session.close()).catch(() => undefined)
    try {
      await prepare(session)
      return session
    } catch (error) {
      // A release that fails as well would hide why.
      await session.close().catch(() => undefined)
      throw error
    }
  }

  const create = async (
    args?: SandboxClientCreateArgs<SandboxCreateOptions> | Manifest,
    others?: SandboxCreateOptions
  ) => {
    const given = normalizeSandboxClientCreateArgs(args, others)
    // After a manifest, the SDK's own arguments are among the options.
    const asked = optionsOf(given.options, args instanceof Manifest ? argumentNames : [])
    validateSandboxArchiveLimits(given.archiveLimits)
    ManifestFiles.check(given.manifest)
    const store = given.snapshot === undefined ? storeOfClient : Snapshots.of(given.snapshot, archiveBytesMax)
    const state: SessionState.SessionState = {
      sessionId: crypto.randomUUID(),
      manifest: given.manifest,
      environment: await given.manifest.resolveEnvironment(),
      snapshot: null,
      snapshotFingerprint: null,
      workspaceReady: true
    }
    return open({ sandbox: asked.sandbox, store }, given.archiveLimits, state, (session) =>
      session.applyManifest(given.manifest)
    )
  }

  /** Stores the workspace, and removes the snapshot that this one replaces. */
  const persist = async (one: Live, store: Snapshots.SnapshotStore, state: SessionState.SessionState) => {
    const stored = await archived(one.session, store)
    // Not earlier: another call may have stored one in the meantime.
    const before = one.stored
    one.stored = stored
    state.snapshot = stored.snapshot
    state.snapshotFingerprint = stored.digest
    state.snapshotFingerprintVersion = Snapshots.digestVersion
    // One that cannot be removed costs space. The new one is stored.
    if (before !== undefined && before.snapshot.id !== stored.snapshot.id)
      await store.remove(before).catch(() => undefined)
  }

  return {
    backendId: "cogni-sandbox",
    create,
    serializeSessionState: async (state) => {
      const one = live.get(state.sessionId)
      if (one?.store !== undefined) await persist(one, one.store, state)
      return SessionState.serialize(state)
    },
    deserializeSessionState: SessionState.deserialize,
    validateSessionStateForResume: (input, { archiveLimits, clientOptions } = {}) => {
      optionsOf(clientOptions)
      validateSandboxArchiveLimits(archiveLimits)
      if (input.source === "runState") SessionState.parse(input.state)
      else checkState(input.state)
    },
    canReusePreservedOwnedSession: ({ sessionId }) => live.get(sessionId)?.session.isRunning ?? false,
    resume: async (state, { archiveLimits, clientOptions } = {}) => {
      checkState(state)
      const asked = optionsOf(clientOptions)
      const one = live.get(state.sessionId)
      if (one?.session.isRunning === true) {
        if (archiveLimits !== undefined) one.session.setArchiveLimits(archiveLimits)
        return one.session
      }
      const stored = SessionState.storedOf(state)
      if (stored === undefined) throw notRestorable("it has no snapshot of its workspace")
      if (storeOfClient === undefined || stored.snapshot.type !== snapshot?.type) {
        throw notRestorable(`this client has no ${stored.snapshot.type} snapshots`)
      }
      SessionState.requireEnvironment(state)
      const archive = await storeOfClient.load(stored)
      return open(
        { sandbox: asked.sandbox, store: storeOfClient },
        archiveLimits,
        { ...state, sessionId: crypto.randomUUID() },
        (session) => session.hydrateWorkspace(archive)
      )
    },
    delete: async (state) => {
      checkState(state)
      const one = live.get(state.sessionId)
      await one?.session.close()
      const stored = SessionState.storedOf(state)
      const store = one?.store ?? storeOfClient
      if (stored === undefined || store === undefined) return
      // Loading compares the digest, so that a forged state removes nothing.
      await store.load(stored)
      await store.remove(stored)
    }
  }
}

const archived = async (session: AgentSession, store: Snapshots.SnapshotStore): Promise<Snapshots.Stored> => {
  try {
    return await store.save(await session.persistWorkspace())
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause)
    throw Object.assign(
      new SandboxSnapshotPersistError(
        `The workspace was not stored, so its state is not serialized. ${message}`
      ),
      { cause }
    )
  }
}

/** A session whose sandbox runs. */
interface Live {
  readonly session: AgentSession
  readonly store: Snapshots.SnapshotStore | undefined
  /** The snapshot that this session has stored last. */
  stored: Snapshots.Stored | undefined
}

const checkState = (state: SessionState.SessionState): void => {
  SessionState.check(state)
  ManifestFiles.check(state.manifest)
}

const argumentNames = ["snapshot", "concurrencyLimits", "archiveLimits"]

/** Refuses options of other clients, such as ports, instead of ignoring them. */
const optionsOf = (
  given: SandboxCreateOptions | undefined,
  known: ReadonlyArray<string> = []
): SandboxCreateOptions => {
  const unknown = Object.keys(given ?? {}).filter((name) => name !== "sandbox" && !known.includes(name))
  if (unknown.length > 0) {
    throw new Unsupported({
      operation: `option ${unknown.join(", ")} of a session`,
      reason: "a session has only the option sandbox, with the spec of its sandbox. A sandbox exposes no port"
    })
  }
  return given ?? {}
}

const positive = (name: string, value: number): number => {
  if (Number.isSafeInteger(value) && value > 0) return value
  throw new SandboxConfigurationError(`${name} must be a whole number above 0.`)
}

const notRestorable = (why: string) =>
  new SandboxSnapshotNotRestorableError(
    `The sandbox of this state is gone, and the state cannot be restored: ${why}. Give the client the option snapshot before a state is serialized and when it is resumed, or create a new session.`
  )
