/**
 * Files of a run that a relay keeps on the host's disk, so that a refusal or the death of a process loses nothing:
 *
 *     <directory>/<run id>/  state.json   relay.git/   workspace/repo/   bundle
 *
 * Creating the directory claims the run. The state is replaced as a whole, and has the stage of the run.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { formatOwner, type Owner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { attempt as attempted } from "@cogni/sandbox-host-files/Attempt"
import { isErrno } from "@cogni/sandbox-host-files/Descriptor"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Option, Schema } from "effect"
import { mkdir, readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { type Kept, KnownSecret } from "../../RelaySteps.ts"
import { NotKept, RelayFailed } from "../../GitRelayError.ts"
import { BranchName, CommitId, ObjectFormat } from "../../Refs.ts"
import { attempt, attemptWhole, removeOwn, removeTree, unusable } from "../git/RelayFiles.ts"

/** `settled`: delivered or discarded; it only waits to be removed. */
export const Stage = Schema.Literals(["cloning", "cloned", "collected", "checked", "pushed", "settled"])

export type Stage = typeof Stage.Type

export const State = Schema.Struct({
  version: Schema.Literal(1),
  runId: RunId,
  url: Schema.String,
  /** Branch of the origin to push to. */
  branch: BranchName,
  /** Name of the branch in the workspace. */
  workspaceBranch: BranchName,
  stage: Stage,
  /** `ResourceLabels.formatOwner` of the process that works on it. */
  owner: Schema.String,
  since: Schema.String,
  canaries: Schema.Array(KnownSecret),
  createPr: Schema.Boolean,
  deliver: Schema.optional(Schema.Literals(["push", "patch"])),
  /** `uncommittedMessage` of the request, under the name that stored states have. */
  commitLeftovers: Schema.optional(Schema.String),
  depth: Schema.Int,
  /** This field and those below are set from stage `cloned` on. */
  baseBranch: Schema.optional(Schema.String),
  baseCommit: Schema.optional(CommitId),
  objectFormat: Schema.optional(ObjectFormat),
  user: Schema.optional(Schema.Struct({ userId: Schema.Int, groupId: Schema.Int })),
  /** Commit that the branch pointed to after the last push. */
  pushedTip: Schema.optional(CommitId)
})

export type State = typeof State.Type

/** Identifies processes, and reports whether they are alive. `HostOwner` of `@cogni/sandbox-docker` is one. */
export interface Owners {
  readonly self: () => Owner
  readonly liveness: (owner: Owner) => "alive" | "dead" | "unknown"
}

const StateJson = Schema.fromJsonString(State)
const decode = Schema.decodeUnknownOption(StateJson)
const encode = Schema.encodeSync(StateJson)

/** Milliseconds after which a directory without a state counts as orphaned. */
const newMillisMax = 60_000

export type KeptRuns = ReturnType<typeof make>

export const make = (options: { readonly directory: string; readonly owners: Owners }) => {
  const { directory: root, owners } = options
  const own = formatOwner(owners.self())
  /** Runs that this process works on. */
  const busy = new Set<RunId>()
  const directoryOf = (runId: RunId) => join(root, runId)
  const notKept = (runId: RunId, detail: string, remedy: string) => new NotKept({ runId, detail, remedy })

  const save = (state: State) => {
    const { state: path } = relayPaths(directoryOf(state.runId))
    // Not synced to disk: after a clone, that would wait for all of its data, and the death of a process loses nothing.
    return attemptWhole(path, () => OwnFiles.replace(path, `${encode(state)}\n`))
  }

  /** Reads a run's state, if it has one. A state that cannot be read fails: its run may have commits. */
  const find = Effect.fnUntraced(function* (runId: RunId) {
    const { state: path } = relayPaths(directoryOf(runId))
    const text = yield* attempt(path, () =>
      readFile(path, "utf8").catch((thrown: unknown) => {
        if (isErrno(thrown, "ENOENT")) return undefined
        throw thrown
      })
    )
    if (text === undefined) return undefined
    const state = Option.getOrUndefined(decode(text))
    if (state !== undefined) return state
    return yield* new RelayFailed({
      detail: `${path} is not the state of a relay of this version`,
      remedy: `Use the version that wrote it. To give up the commits of the run, remove ${directoryOf(runId)}`
    })
  })

  /** Reads the state of a run that has been cloned. */
  const read = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state?.user !== undefined) return { ...state, user: state.user }
    return yield* new RelayFailed({
      detail: `the kept files of ${runId} no longer exist`,
      remedy: "Its scope is closed, or its directory was removed; run it again"
    })
  })

  /** Whether another process works on the run and is alive. */
  const inUse = (state: State): boolean => {
    if (state.owner === own) return false
    const owner = parseOwner(state.owner)
    return owner !== undefined && owners.liveness(owner) === "alive"
  }

  /** Whether a run can be removed: it is settled, or a dead process left it half-cloned. */
  const isOver = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state !== undefined) return (state.stage === "cloning" || state.stage === "settled") && !inUse(state)
    // Another process may have just created it.
    const made = yield* attempt(root, () => stat(directoryOf(runId)).catch(() => undefined))
    return made !== undefined && Date.now() - made.mtimeMs > newMillisMax
  })

  const remove = Effect.fnUntraced(function* (runId: RunId) {
    yield* removeTree(relayPaths(directoryOf(runId)).workspace)
    yield* removeOwn(directoryOf(runId))
  })

  const claim = Effect.fnUntraced(function* (state: Omit<State, "version" | "owner" | "since" | "stage">) {
    const { runId } = state
    if (yield* isOver(runId)) yield* remove(runId)
    const make = attempted(
      async () => {
        await OwnFiles.makeDirectory(root)
        await mkdir(directoryOf(runId), { mode: 0o700 })
      },
      (message, thrown) =>
        isErrno(thrown, "EEXIST")
          ? notKept(
              runId,
              "it is already kept",
              `Resume it (${named("GitRelay.reopen")}), drop it (${named("GitRelay.discard")}), or use another run ID`
            )
          : unusable(root, message)
    )
    const claimed: State = {
      ...state,
      version: 1,
      stage: "cloning",
      owner: own,
      since: new Date().toISOString()
    }
    // Without a state, `letGo` would take the directory for that of another process.
    yield* Effect.uninterruptible(Effect.andThen(make, save(claimed)))
    return claimed
  })

  const take = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state === undefined || state.stage === "cloning" || state.stage === "settled")
      return yield* notKept(
        runId,
        "no commits are kept",
        `It was pushed or dropped, or never had a repository. See: ${named("GitRelay.kept")}`
      )
    if (inUse(state))
      return yield* notKept(runId, "it is in use by another process", "Wait for that process to end")
    const taken = { ...state, owner: own }
    yield* save(taken)
    return taken
  })

  const letGo = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state === undefined || state.owner !== own) return
    if (state.stage === "settled" || state.stage === "cloning") return yield* remove(runId)
    yield* save({ ...state, owner: "" })
  })

  /** Occupies a run until the scope closes. The run is then removed, unless it is not delivered yet. */
  const occupy = (runId: RunId) =>
    Effect.acquireRelease(
      // If this process already holds the run, its first holder releases it.
      Effect.suspend(() =>
        busy.has(runId)
          ? Effect.fail(
              notKept(runId, "it is in use by this process", "Wait until this process is done with it")
            )
          : Effect.sync(() => busy.add(runId))
      ),
      () =>
        Effect.andThen(
          Effect.ignore(letGo(runId)),
          Effect.sync(() => busy.delete(runId))
        )
    )

  /** Marks a run as done, so that it is removed with its scope. */
  const settle = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state !== undefined) yield* save({ ...state, stage: "settled" })
  })

  const discard = Effect.fnUntraced(function* (runId: RunId) {
    if ((yield* find(runId)) === undefined) return
    if (busy.has(runId)) return yield* settle(runId)
    // Marked before it is removed, so that no process resumes a half-removed run.
    if (!(yield* isOver(runId))) yield* save({ ...(yield* take(runId)), stage: "settled" })
    yield* remove(runId)
  })

  /** Lists the runs that are not delivered yet, oldest first, and removes those that are over. */
  const list = Effect.gen(function* () {
    const names = yield* attempt(root, () => readdir(root).catch(() => [] as Array<string>))
    const found = yield* Effect.forEach(names.filter(Schema.is(RunId)), (runId) =>
      // One run that cannot be read must not hide the others.
      Effect.catchTag(listed(runId), "RelayFailed", ({ message }) =>
        Effect.as(Effect.logWarning(`the kept commits of ${runId} are not listed: ${message}`), undefined)
      )
    )
    return found
      .filter((kept) => kept !== undefined)
      .toSorted((a, b) => a.since.getTime() - b.since.getTime())
  })

  const listed = Effect.fnUntraced(function* (runId: RunId) {
    if (yield* isOver(runId)) {
      if (!busy.has(runId)) yield* Effect.ignore(remove(runId))
      return undefined
    }
    const state = yield* find(runId)
    if (state === undefined) return undefined
    const { branch, since, stage, url } = state
    const directory = directoryOf(runId)
    const isUsed = busy.has(runId) || inUse(state)
    return { runId, url, branch, stage, directory, since: new Date(since), inUse: isUsed } satisfies Kept
  })

  return { directoryOf, save, read, claim, take, occupy, settle, discard, list }
}
