/**
 * The port to the files that a run may change, and to the inputs that it may only read.
 *
 * The host never writes into a tree that the agent can write, and never follows a path inside one: inputs are in their
 * own directory, mounted read-only.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { Mount } from "./ContainerMount.ts"
import type { User } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import { type HostFailed, WorkspaceFailed } from "./SandboxReason.ts"
import type { Input, WorkspaceSource } from "./SpecFields.ts"
import { socketTarget } from "./internal/SocketPlace.ts"
import type { SpecialFiles } from "./SpecialFiles.ts"
import { target, inputsTarget } from "./SandboxPlace.ts"

/** A directory of files that the host mounts in the sandbox, read-only. */
export interface PlantedDirectory {
  /** Absolute, as the agent sees it. */
  readonly target: string
  /** A plain name for the directory on the host, below the run's own directory. */
  readonly name: string
  readonly files: ReadonlyArray<Input>
}

/**
 * Directories of a sandbox that waits for a run: a workspace, inputs and a place for a socket, all of them empty and
 * already mounted.
 */
type PreparedDirectories = {
  /** Every mount of the sandbox. */
  readonly mounts: ReadonlyArray<Mount>
  readonly user: User
  /** Whether `.cogni` in the workspace belongs to the agent. */
  readonly memory: boolean
  /** Remove whatever others left in the workspace: a run starts cold in it. */
  readonly clean: Effect.Effect<void, HostFailed>
}

/**
 * A directory that a run may have as its workspace. It is held open while the scope of `examine` is. Only `acquire` of
 * the same Workspace knows which one it is, by this object itself: a copy stands for no directory, and is examined
 * again.
 */
type ExaminedDirectory = {
  /** User that its agent must run as, if it is not the one of temporary workspaces. */
  readonly otherUser?: User | undefined
}

export interface WorkspaceRequest {
  readonly runId: RunId
  readonly source: WorkspaceSource
  readonly inputs: ReadonlyArray<Input>
  readonly planted: ReadonlyArray<PlantedDirectory>
  /** If true, `.cogni` in the workspace belongs to the agent, and no input is mounted there. */
  readonly memory: boolean
  /** The run's limit on {@link CountedBytes}. */
  readonly workspaceBytesMax: number
  /** The run's directory on the host. Absent if nothing is stored. */
  readonly directory?: string | undefined
  /** The directory of the source, if `examine` returned it. */
  readonly examined?: ExaminedDirectory | undefined
  /**
   * Directories that `prepare` returned, for a run without planted files. The inputs are written into them. A directory
   * of the source takes the place of the workspace among their mounts. They are removed by the scope of `prepare`.
   */
  readonly prepared?: PreparedDirectories | undefined
}

/** Bytes that count towards a run's limit: those added since it began, or all of them, as the spec says. */
interface CountedBytes {
  readonly bytes: number
  /** Whether the comparison with the limit is certain. An agent that runs meanwhile can hide files by moving them. */
  readonly isCertain: boolean
}

export interface AcquiredWorkspace {
  readonly mounts: ReadonlyArray<Mount>
  /** User that the agent must run as to read and write the workspace. Never root. */
  readonly user: User
  /** Cheap enough to run every second. */
  readonly countedBytes: Effect.Effect<CountedBytes, WorkspaceFailed | HostFailed>
  /** The same, while nothing changes the workspace. The result is certain. */
  readonly countedBytesAtRest: Effect.Effect<number, WorkspaceFailed | HostFailed>
  /**
   * Settles when another count may have another result than the last one, or than the first state of an empty
   * workspace. Looks at the disk, so that workspaces in which nothing happens need not be counted again and again.
   * Absent: another count always may.
   */
  readonly changed?: Effect.Effect<void> | undefined
  /** Special files that the host had left there, through which an agent may reach more than files. */
  readonly specialFiles: Effect.Effect<SpecialFiles>
}

export class Workspace extends Context.Service<
  Workspace,
  {
    /** Fails with `WorkspaceFailed` for the directory that the spec names, and with `HostFailed` for the host's own. */
    readonly acquire: (
      request: WorkspaceRequest
    ) => Effect.Effect<AcquiredWorkspace, WorkspaceFailed | HostFailed, Scope.Scope>
    /**
     * Check a directory as `acquire` does, and hold it open. `undefined`: it has mounts below it, which no sandbox may
     * have. Absent: no run in a directory gets a waiting sandbox.
     */
    readonly examine?:
      | ((
          path: string
        ) => Effect.Effect<ExaminedDirectory | undefined, WorkspaceFailed | HostFailed, Scope.Scope>)
      | undefined
    /**
     * Make empty directories for a sandbox that waits for a run. By default, they belong to the user of temporary
     * workspaces. Absent: this workspace has none.
     */
    readonly prepare?:
      | ((
          request: Pick<WorkspaceRequest, "memory"> & { readonly user?: User | undefined }
        ) => Effect.Effect<PreparedDirectories, WorkspaceFailed | HostFailed, Scope.Scope>)
      | undefined
  }
>()("@cogni/sandbox-core/Workspace") {}

export const makeMemory = (options?: {
  /** Directories that exist. Defaults to all. */
  readonly directories?: ReadonlySet<string> | undefined
}) =>
  Effect.succeed(
    Workspace.of({
      acquire: Effect.fn("Workspace.acquire")(function* (request: WorkspaceRequest) {
        const path = request.source.type === "directory" ? request.source.path : `/memory/${request.runId}`
        if (request.source.type === "directory" && options?.directories?.has(path) === false) {
          return yield* new WorkspaceFailed({
            path,
            detail: "does not exist",
            remedy: "Make it, or name another"
          })
        }
        const readable = memoryMount(request.runId)
        const own: Mount = { type: "directory", source: path, target, readOnly: false }
        return {
          mounts: (request.source.type === "directory"
            ? request.prepared?.mounts.map((mount) => (mount.target === target ? own : mount))
            : request.prepared?.mounts) ?? [
            own,
            ...memoryInputs(request.runId, request.memory),
            ...request.planted.map(({ name, target }) => readable(name, target))
          ],
          user: memoryUser,
          countedBytes: Effect.succeed({ bytes: 0, isCertain: true }),
          countedBytesAtRest: Effect.succeed(0),
          specialFiles: Effect.succeed({ files: [], isWhole: true })
        } satisfies AcquiredWorkspace
      }),
      examine: () => Effect.succeed({}),
      prepare: ({ memory, user = memoryUser }) =>
        Effect.sync(() => {
          const place = `waiting-${crypto.randomUUID()}`
          return {
            mounts: [
              { ...memoryMount(place)("workspace", target), readOnly: false },
              ...memoryInputs(place, memory),
              memoryMount(place)("llm-sock", socketTarget)
            ],
            user,
            memory,
            clean: Effect.void
          }
        })
    })
  )

const memoryUser: User = { userId: 1000, groupId: 1000 }

const memoryMount =
  (place: string) =>
  (name: string, at: string): Mount => ({
    type: "directory",
    source: `/memory/${place}/${name}`,
    target: at,
    readOnly: true
  })

const memoryInputs = (place: string, memory: boolean): ReadonlyArray<Mount> =>
  [inputsTarget, ...(memory ? [] : [`${target}/.cogni`])].map((at) => memoryMount(place)("inputs", at))

/** Workspaces in memory: directories are only names. */
export const layerMemory = (options?: Parameters<typeof makeMemory>[0]): Layer.Layer<Workspace> =>
  Layer.effect(Workspace, makeMemory(options))
