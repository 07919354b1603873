/**
 * What a relay keeps of a run on the host's disk, so that a process that dies, or a refusal, loses nothing:
 *
 *     <directory>/<run id>/  state.json   relay.git/   workspace/repo/   bundle
 *
 * Making the directory claims the run. The state is replaced whole, and says how far it came.
 */
import { formatOwner, type Owner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { attempt as attempted } from "@cogni/sandbox-host-files/Attempt"
import { isErrno } from "@cogni/sandbox-host-files/Descriptor"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Option, Schema } from "effect"
import { mkdir, readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { type Kept, KnownSecret } from "../../GitRelay.ts"
import { NotKept, RelayFailed } from "../../GitRelayError.ts"
import { BranchName, CommitId, ObjectFormat } from "../../Refs.ts"
import { attempt, removeOwn, removeTree, unusable } from "../git/RelayFiles.ts"

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
  deliver: Schema.optional(Schema.Literals(["push", "patch"])),
  commitLeftovers: Schema.optional(Schema.String),
  depth: Schema.Int,
  /** What follows is known from `cloned` on. */
  baseBranch: Schema.optional(Schema.String),
  baseCommit: Schema.optional(CommitId),
  objectFormat: Schema.optional(ObjectFormat),
  user: Schema.optional(Schema.Struct({ userId: Schema.Int, groupId: Schema.Int })),
  /** Where the branch stood when we pushed it last. */
  pushedTip: Schema.optional(CommitId)
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
  /** Runs that this process works on. */
  const busy = new Set<RunId>()
  const directoryOf = (runId: RunId) => join(root, runId)
  const notKept = (runId: RunId, detail: string, remedy: string) => new NotKept({ runId, detail, remedy })

  const save = (state: State) => {
    const { state: path } = relayPaths(directoryOf(state.runId))
    // Not forced onto the disk: behind a clone that would wait for all of it, and a process that dies loses nothing.
    return attempt(path, () => OwnFiles.replace(path, `${encode(state)}\n`))
  }

  const find = (runId: RunId) =>
    attempt(root, () => readFile(relayPaths(directoryOf(runId)).state, "utf8").catch(() => undefined)).pipe(
      Effect.map((text) => Option.getOrUndefined(decode(text)))
    )

  /** The state of a run that has been cloned. */
  const read = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state?.user !== undefined) return { ...state, user: state.user }
    return yield* new RelayFailed({
      detail: `what is kept of ${runId} is gone`,
      remedy: "Its scope is closed, or somebody has removed it; run it again"
    })
  })

  /** Ours, or that of a process that is no more. */
  const inUse = (state: State): boolean => {
    if (state.owner === own) return false
    const owner = parseOwner(state.owner)
    return owner !== undefined && owners.liveness(owner) === "alive"
  }

  /** Nobody can want it: half made by a process that is no more, or done with. */
  const isOver = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state !== undefined) return (state.stage === "cloning" || state.stage === "settled") && !inUse(state)
    // Somebody may have made it just now.
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
    yield* attempted(
      async () => {
        await mkdir(root, { recursive: true, mode: 0o700 })
        await mkdir(directoryOf(runId), { mode: 0o700 })
      },
      (message, thrown) =>
        isErrno(thrown, "EEXIST")
          ? notKept(
              runId,
              "there is something already",
              "Take it up (relay retry), drop it (relay drop), or use another run id"
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
    yield* save(claimed)
    return claimed
  })

  const take = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state === undefined || state.stage === "cloning" || state.stage === "settled")
      return yield* notKept(
        runId,
        "nothing is kept",
        "It was pushed or dropped, or never had a repository. See: relay list"
      )
    if (inUse(state)) return yield* notKept(runId, "somebody is at work", "Wait for its process to end")
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

  /** Occupied until the scope closes; then gone, unless something of it is not pushed yet. */
  const occupy = (runId: RunId) =>
    Effect.acquireRelease(
      // A run that this process holds already has its own way to end.
      Effect.suspend(() =>
        busy.has(runId)
          ? Effect.fail(notKept(runId, "somebody is at work", "Wait until this process is done with it"))
          : Effect.sync(() => busy.add(runId))
      ),
      () =>
        Effect.andThen(
          Effect.ignore(letGo(runId)),
          Effect.sync(() => busy.delete(runId))
        )
    )

  /** Nothing more is to be done for it: it goes with its scope. */
  const settle = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* find(runId)
    if (state !== undefined) yield* save({ ...state, stage: "settled" })
  })

  const discard = Effect.fnUntraced(function* (runId: RunId) {
    if ((yield* find(runId)) === undefined) return
    if (busy.has(runId)) return yield* settle(runId)
    // Said before it is done: half of it must not be taken up by anybody.
    if (!(yield* isOver(runId))) yield* save({ ...(yield* take(runId)), stage: "settled" })
    yield* remove(runId)
  })

  /** What is not pushed yet, oldest first; what is over is removed. */
  const list = Effect.gen(function* () {
    const names = yield* attempt(root, () => readdir(root).catch(() => [] as Array<string>))
    const found: Array<Kept> = []
    for (const runId of names.filter(Schema.is(RunId))) {
      if (yield* isOver(runId)) {
        if (!busy.has(runId)) yield* Effect.ignore(remove(runId))
        continue
      }
      const state = yield* find(runId)
      if (state === undefined) continue
      const { branch, since, stage, url } = state
      const directory = directoryOf(runId)
      const isUsed = busy.has(runId) || inUse(state)
      found.push({ runId, url, branch, stage, directory, since: new Date(since), inUse: isUsed })
    }
    return found.toSorted((a, b) => a.since.getTime() - b.since.getTime())
  })

  return { directoryOf, save, read, claim, take, occupy, settle, discard, list }
}
