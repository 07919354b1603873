/**
 * What a relay keeps of a run on the host's disk, so that a process that dies, or a refusal, loses nothing:
 *
 *     <directory>/<run id>/  state.json   relay.git/   workspace/repo/   bundle
 *
 * Making the directory claims the run. The state is replaced whole, and says how far it came.
 */
import { attempt as attempted, messageOf } from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { formatOwner, type Owner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, Option, Schema } from "effect"
import { chmod, mkdir, readdir, readFile, rm, stat } from "node:fs/promises"
import { join } from "node:path"
import { KnownSecret } from "../../GitRelay.ts"
import { NotKept, RelayFailed } from "../../GitRelayError.ts"
import { BranchName, CommitId, ObjectFormat } from "../../Refs.ts"

/** `settled`: pushed or discarded; it only waits to be removed. */
export const Stage = Schema.Literals(["cloning", "cloned", "collected", "checked", "pushed", "settled"])

export type Stage = typeof Stage.Type

export const State = Schema.Struct({
  version: Schema.Literal(1),
  runId: RunId,
  url: Schema.String,
  /** Where it is pushed to. */
  branch: BranchName,
  /** What it is called in the workspace. */
  workspaceBranch: BranchName,
  stage: Stage,
  /** `ResourceLabels.formatOwner` of the process that works on it. */
  owner: Schema.String,
  since: Schema.String,
  canaries: Schema.Array(KnownSecret),
  createPr: Schema.Boolean,
  deliver: Schema.optionalKey(Schema.Literals(["push", "patch"])),
  commitLeftovers: Schema.optionalKey(Schema.String),
  depth: Schema.Int,
  /** What follows is known from `cloned` on. */
  baseBranch: Schema.optionalKey(Schema.String),
  baseCommit: Schema.optionalKey(CommitId),
  objectFormat: Schema.optionalKey(ObjectFormat),
  user: Schema.optionalKey(Schema.Struct({ userId: Schema.Int, groupId: Schema.Int })),
  /** Where the branch stood when we pushed it last. */
  pushedTip: Schema.optionalKey(CommitId)
})

export type State = typeof State.Type

/** Whose a process is, and whether it lives. `HostOwner` of `@cogni/sandbox-docker` is one. */
export interface Owners {
  readonly self: () => Owner
  readonly liveness: (owner: Owner) => "alive" | "dead" | "unknown"
}

const StateJson = Schema.fromJsonString(State)
const decode = Schema.decodeUnknownOption(StateJson)
const encode = Schema.encodeSync(StateJson)

/** How long a directory may be without a state before it is taken for a leftover. */
const newMillisMax = 60_000

export type KeptRuns = ReturnType<typeof make>

export const make = (options: { readonly directory: string; readonly owners: Owners }) => {
  const { directory: root, owners } = options
  const own = formatOwner(owners.self())
  const directoryOf = (runId: RunId) => join(root, runId)

  const save = (state: State) => {
    const { state: path } = relayPaths(directoryOf(state.runId))
    // Not forced onto the disk: behind a clone that would wait for all of it, and a process that dies loses nothing.
    return attempt(path, () => OwnFiles.replace(path, `${encode(state)}\n`))
  }

  const read = (runId: RunId) =>
    attempt(root, () => readFile(relayPaths(directoryOf(runId)).state, "utf8").catch(() => undefined)).pipe(
      Effect.map((text) => Option.getOrUndefined(decode(text)))
    )

  /** Ours, or that of a process that is no more. */
  const inUse = (state: State): boolean => {
    if (state.owner === own) return false
    const owner = parseOwner(state.owner)
    return owner !== undefined && owners.liveness(owner) === "alive"
  }

  const claim = (state: State) =>
    Effect.andThen(
      attempted(
        async () => {
          await mkdir(root, { recursive: true, mode: 0o700 })
          await mkdir(directoryOf(state.runId), { mode: 0o700 })
        },
        (_, thrown) =>
          (thrown as NodeJS.ErrnoException).code === "EEXIST"
            ? new NotKept({
                runId: state.runId,
                detail: "there is something already",
                remedy: `Take it up (relay retry), drop it (relay drop), or use another run id`
              })
            : unusable(root, thrown)
      ),
      save(state)
    )

  const take = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* read(runId)
    if (state === undefined || state.stage === "cloning" || state.stage === "settled") {
      return yield* new NotKept({
        runId,
        detail: "nothing is kept",
        remedy: "It was pushed or dropped, or never had a repository. See: relay list"
      })
    }
    if (inUse(state)) {
      return yield* new NotKept({
        runId,
        detail: "somebody is at work",
        remedy: "Wait for its process to end"
      })
    }
    const taken = { ...state, owner: own }
    yield* save(taken)
    return taken
  })

  /** Nobody can want it: half made by a process that is no more, or done with. */
  const isOver = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* read(runId)
    if (state !== undefined) return (state.stage === "cloning" || state.stage === "settled") && !inUse(state)
    // Somebody may have made it just now.
    const made = yield* attempt(root, () => stat(directoryOf(runId)).catch(() => undefined))
    return made !== undefined && Date.now() - made.mtimeMs > newMillisMax
  })

  const ids = attempt(root, () => readdir(root).catch(() => [] as Array<string>)).pipe(
    Effect.map((names) => names.filter(Schema.is(RunId)))
  )

  return { own, directoryOf, save, read, inUse, isOver, claim, take, ids }
}

const unusable = (path: string, thrown: unknown) =>
  new RelayFailed({
    detail: `${path} cannot be used: ${messageOf(thrown)}`,
    remedy: "Look at the directory, its disk and its permissions",
    isRetryable: false
  })

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, RelayFailed> =>
  attempted(run, (_, thrown) => unusable(path, thrown))

/** An empty directory of the host's own, whose files the user of a container may read. */
export const makeOpen = (path: string) =>
  attempt(path, async () => {
    await rm(path, { recursive: true, force: true })
    await mkdir(path, { mode: 0o755 })
    await chmod(path, 0o755)
  })

/** Lets the user of a container read a file of the host's own making. */
export const letRead = (path: string) => attempt(path, () => chmod(path, 0o644))

/** Makes a user the owner of a tree that the host made, before any agent saw it; links are not followed. */
export const giveTo = (
  path: string,
  user: { readonly userId: number; readonly groupId: number }
): Effect.Effect<void, RelayFailed> =>
  Effect.mapError(HostTree.giveTo(path, user), (error) => unusable(path, error))

/** Removes a tree that an agent could write. */
export const removeTree = (path: string): Effect.Effect<void, RelayFailed> =>
  Effect.mapError(HostTree.remove(path), (error) => unusable(path, error))

/** Of the host's own making, where no agent has been. */
export const removeOwn = (path: string) => attempt(path, () => rm(path, { recursive: true, force: true }))
