/**
 * The port through which a run gets the files it may change, and the inputs it may only read.
 *
 * The host never writes into a tree the agent can write, nor follows a path inside one: inputs live in a directory of
 * their own, mounted read-only.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { Mount } from "./ContainerRuntime.ts"
import type { User } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import { WorkspaceFailed } from "./SandboxError.ts"
import type { Input, WorkspaceSource } from "./SandboxSpec.ts"

export const target = "/workspace"

/** Where inputs lie besides `/workspace/.cogni`. */
export const inputsTarget = "/cogni"

/** A directory of files that the host lays somewhere in the sandbox, for reading. */
export interface PlantedDirectory {
  /** Absolute, as the agent sees it. */
  readonly target: string
  /** On the host, below the run's own: a plain name. */
  readonly name: string
  readonly files: ReadonlyArray<Input>
}

export interface WorkspaceRequest {
  readonly runId: RunId
  readonly source: WorkspaceSource
  readonly inputs: ReadonlyArray<Input>
  readonly planted: ReadonlyArray<PlantedDirectory>
  /** `.cogni` in the workspace is the agent's own: no input is mounted there. */
  readonly memory: boolean
  /** The run's limit. */
  readonly workspaceBytesMax: number
  /** The run's directory on the host. Absent where nothing is kept. */
  readonly directory?: string | undefined
}

/** What counts for a run's limit: bytes added since it began, or all, where all count. */
export interface CountedBytes {
  readonly bytes: number
  /** Whether there can be no more than that: who works while it is counted can move files out of its way. */
  readonly isCertain: boolean
}

/** Something in a workspace that is neither file, directory nor link. */
export interface SpecialFile {
  /** From the workspace. */
  readonly path: string
  readonly kind: "socket" | "FIFO" | "device"
}

/** Those in the upper levels of a workspace. */
export interface SpecialFiles {
  readonly files: ReadonlyArray<SpecialFile>
  /** Whether all of the upper levels were looked at. */
  readonly isWhole: boolean
}

export interface AcquiredWorkspace {
  readonly mounts: ReadonlyArray<Mount>
  /** Who the agent must be, so that it can read and write the workspace. Never root. */
  readonly user: User
  /** Cheap enough to ask every second. */
  readonly countedBytes: Effect.Effect<CountedBytes, WorkspaceFailed>
  /** The same, asked while nothing happens in the workspace, and so certain. */
  readonly countedBytesAtRest: Effect.Effect<number, WorkspaceFailed>
  /** What the host had left in it through which an agent may reach more than files. */
  readonly specialFiles: Effect.Effect<SpecialFiles>
}

/** How many special files are named. */
const namedMax = 10

/** A warning about special files, and what they open; `undefined` where there are none. */
export const specialFilesWarning = ({ files }: SpecialFiles): string | undefined => {
  if (files.length === 0) return undefined
  const named = files.slice(0, namedMax).map(({ kind, path }) => `${kind} ${JSON.stringify(path)}`)
  const rest = files.length > namedMax ? ` and ${files.length - namedMax} more` : ""
  return (
    `the workspace holds ${named.join(", ")}${rest}: an agent can reach the process of the host at the other end, ` +
    "also without a network. Stop that process or move the file, unless the agent is to use it"
  )
}

/** Says what special files a workspace brings along. */
export const warn = ({ specialFiles }: Pick<AcquiredWorkspace, "specialFiles">): Effect.Effect<void> =>
  Effect.flatMap(specialFiles, (found) => {
    const warning = specialFilesWarning(found)
    return warning === undefined ? Effect.void : Effect.logWarning(warning)
  })

export class Workspace extends Context.Service<
  Workspace,
  {
    readonly acquire: (
      request: WorkspaceRequest
    ) => Effect.Effect<AcquiredWorkspace, WorkspaceFailed, Scope.Scope>
  }
>()("@cogni/sandbox-core/Workspace") {}

export const makeMemory = (options?: {
  /** Directories that exist; all of them, when left out. */
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
        const readable = (name: string, target: string): Mount => ({
          type: "directory",
          source: `/memory/${request.runId}/${name}`,
          target,
          readOnly: true
        })
        return {
          mounts: [
            { type: "directory", source: path, target, readOnly: false },
            readable("inputs", inputsTarget),
            ...(request.memory ? [] : [readable("inputs", `${target}/.cogni`)]),
            ...request.planted.map(({ name, target }) => readable(name, target))
          ],
          user: { userId: 1000, groupId: 1000 },
          countedBytes: Effect.succeed({ bytes: 0, isCertain: true }),
          countedBytesAtRest: Effect.succeed(0),
          specialFiles: Effect.succeed({ files: [], isWhole: true })
        } satisfies AcquiredWorkspace
      })
    })
  )

/** Directories that are only names. */
export const layerMemory = (options?: Parameters<typeof makeMemory>[0]): Layer.Layer<Workspace> =>
  Layer.effect(Workspace, makeMemory(options))
