/**
 * Sandboxes that wait for runs, with nothing of any run in them (docs/adr/0040-a-pool-without-identity.md).
 *
 *     start ─► verify ─► wait ──► taken by one run ─► bound, verified again ─► go ─► empty ─► removed
 *                          └────► too old, too many, unusable, end of the pool ─► removed
 *
 * `PoolPolicy` decides how many wait, `SandboxShape` which runs they can serve, and `internal/PoolFill` starts and
 * removes them. This module gives them to runs. Taking one is a single step that nothing interrupts, so no two runs get
 * the same. A run does not wait for the removal of a sandbox in which no process is left.
 */
import { Context, Effect, Layer, Queue, type Scope } from "effect"
import * as MonotonicTime from "./MonotonicTime.ts"
import {
  type Container,
  type ContainerError,
  ContainerRuntime,
  type ContainerSpec
} from "./ContainerRuntime.ts"
import * as PoolFill from "./internal/PoolFill.ts"
import * as PoolMetrics from "./internal/PoolMetrics.ts"
import * as PoolState from "./internal/PoolState.ts"
import type * as WaitingEntry from "./internal/WaitingEntry.ts"
import * as PoolPolicy from "./PoolPolicy.ts"
import type { PoolReport } from "./PoolReport.ts"
import type { PoolUse } from "./PoolUse.ts"
import * as RunStarts from "./RunStarts.ts"
import { type ContainerFailed, type HostFailed, InvalidSpec, type PostureMismatch } from "./SandboxReason.ts"
import * as SandboxShape from "./SandboxShape.ts"
import { type OpenSpecInput, type SandboxSpec } from "./SandboxSpec.ts"
import { decodeOpen } from "./SpecDecoder.ts"
import { problemsOf } from "./SchemaIssues.ts"
import {
  isNotLoaded,
  isOfSandbox,
  loadSecondsMax,
  type PreparedDirectories,
  type WaitingSpec
} from "./WaitingSandbox.ts"
import { Workspace } from "./Workspace.ts"

/** A sandbox that only this run has. */
export interface Warm {
  readonly _tag: "Warm"
  /** Its directories, which are mounted. They are removed when the scope of `claim` closes. */
  readonly prepared: PreparedDirectories
  /**
   * Give it to the run. The container is removed when this scope closes, or that of `claim`. If no process is left in
   * it then, it is removed in the background.
   */
  readonly bind: (spec: ContainerSpec) => Effect.Effect<Container, ContainerError, Scope.Scope>
  /**
   * Remove the container, because it could not be used: the run starts cold, in its directories. No process of
   * the container works in them then. Does not wait for an engine that is slow to remove it.
   */
  readonly discard: (error: ContainerError | PostureMismatch) => Effect.Effect<void, HostFailed>
}

/** No sandbox for this run, and why. */
export interface Cold {
  readonly _tag: "Cold"
  /** `undefined`: there is no pool. */
  readonly use: PoolUse | undefined
}

export interface SandboxPools {
  /** Take a waiting sandbox for a run, or say why the run gets none. Never waits for one to start. */
  readonly claim: (asked: SandboxShape.Asked) => Effect.Effect<Warm | Cold, never, Scope.Scope>
  /** Why no run in a directory can get a waiting sandbox; `undefined` if it can. */
  readonly whyUnbound: Effect.Effect<string | undefined>
  readonly report: Effect.Effect<PoolReport>
}

/** Default: no sandbox waits, and every run starts cold. */
export const SandboxPool = Context.Reference<SandboxPools>("@cogni/sandbox-core/SandboxPool", {
  defaultValue: () => ({
    claim: () => Effect.succeed<Cold>({ _tag: "Cold", use: undefined }),
    whyUnbound: Effect.succeed("there is no pool"),
    report: Effect.succeed({
      waiting: [],
      shapes: [],
      started: 0,
      hits: 0,
      misses: 0,
      cold: {},
      discarded: 0,
      removing: 0
    })
  })
})

/** Sandboxes that wait whatever the demand. */
export interface Kept extends Pick<OpenSpecInput, "image" | "limits" | "memory" | "preload"> {
  readonly supervised?: boolean | undefined
  /** Directory of the host that their runs will have as their workspace: its owner decides the user of the agent. */
  readonly directory?: string | undefined
  readonly count: number
}

export interface PoolOptions {
  readonly limits?: Partial<PoolPolicy.PoolLimits> | undefined
  /** Sandboxes that wait from the start on. Default: none, and the pool learns from the runs. */
  readonly keep?: ReadonlyArray<Kept> | undefined
  /**
   * Network namespaces that are ready for cold runs, for all images together (default: `sandboxesMax` of the limits).
   * With 0, each cold run makes its own.
   */
  readonly networksMax?: number | undefined
  /** Memory that is available on the host, in bytes. Default: unknown, and only the pool's own limits hold. */
  readonly memoryAvailableBytes?: Effect.Effect<number | undefined> | undefined
}

/** Maximum number of shapes that a pool remembers: callers choose images and limits. */
const shapesMax = 64

/** How much longer than the pool keeps it a sandbox waits before it ends itself. */
const waitSecondsMore = 120

export const make = Effect.fnUntraced(function* (
  options: PoolOptions = {}
): Effect.fn.Return<SandboxPools, InvalidSpec | ContainerFailed, ContainerRuntime | Workspace | Scope.Scope> {
  const runtime = yield* ContainerRuntime
  const { checkLimits, prepare: prepareContainer, readyNetworks, sharesHost } = runtime
  const whyUnbound = runtime.whyUnbound ?? Effect.succeed("this runtime binds no directories")
  const { examine, prepare: prepareDirectories } = yield* Workspace
  const state: PoolState.PoolState = {
    makers:
      prepareContainer === undefined || prepareDirectories === undefined
        ? undefined
        : { prepareContainer, prepareDirectories, sharesHost },
    limits: yield* limitsOf(options),
    memoryAvailableBytes: options.memoryAvailableBytes ?? Effect.undefined,
    known: new Map(),
    entries: new Map(),
    wake: yield* Queue.sliding<void>(1),
    starts: RunStarts.make({
      quietMillis: PoolState.quietMillis,
      waitMillisMax: PoolState.quietWaitMillisMax
    }),
    loadedStarts: RunStarts.make({
      quietMillis: PoolState.loadQuietMillis,
      waitMillisMax: PoolState.loadWaitMillisMax
    }),
    scope: yield* Effect.scope,
    counts: { started: 0, hits: 0, misses: 0, discarded: 0, removing: 0 },
    cold: {},
    sweptMillis: 0
  }
  for (const kept of options.keep ?? []) yield* keep(state, kept, { checkLimits, examine, whyUnbound })
  yield* requirePlaces(state)
  // Older than the fiber below, so that nothing is started after this has looked.
  yield* Effect.addFinalizer(() =>
    Effect.forEach([...state.entries.values()], (entry) => PoolState.drop(state, entry, "end"), {
      concurrency: "unbounded",
      discard: true
    })
  )
  if (state.makers !== undefined) yield* Effect.forkScoped(PoolFill.forever(state, state.makers))
  // So that the first run in a directory need not wait for the answer.
  if (limitsAllow(state)) yield* Effect.forkScoped(whyUnbound)
  const { limits, memoryAvailableBytes } = state
  const networksMax = yield* networksMaxOf(options, limits)
  const networks =
    readyNetworks === undefined || networksMax === 0
      ? Effect.undefined
      : yield* readyNetworks({ limits, memoryAvailableBytes, networksMax })
  return {
    claim: (asked) => claim(state, asked),
    whyUnbound: limitsAllow(state) ? whyUnbound : Effect.succeed("no sandbox waits"),
    report: Effect.map(Effect.all([PoolState.factsOf(state), networks]), ([facts, networks]) => ({
      ...state.counts,
      shapes: PoolState.shapesOf(state, facts),
      ...(networks === undefined ? {} : { networks }),
      cold: { ...state.cold },
      waiting: [...state.entries.values()].map((entry) => ({
        image: entry.shape.image,
        supervised: entry.shape.supervised,
        shape: entry.key,
        ageSeconds: (facts.nowMillis - entry.sinceMillis) / 1000,
        ...(entry.container.memoryBytes === undefined ? {} : { memoryBytes: entry.container.memoryBytes })
      })),
      ...failureOf(state, facts)
    }))
  }
})

export const layer = (
  options?: PoolOptions
): Layer.Layer<never, InvalidSpec | ContainerFailed, ContainerRuntime | Workspace> =>
  Layer.effect(SandboxPool, make(options))

/** Returns why sandboxes cannot be started or used, each of the shape that was asked for last of those. */
const failureOf = (
  { known, limits }: PoolState.PoolState,
  { nowMillis }: Pick<PoolPolicy.PoolFacts, "nowMillis">
): Pick<PoolReport, "failure" | "unusable"> => {
  const shapes = [...known.values()]
  const failure = shapes.findLast((one) => one.failure !== undefined)?.failure
  const unusable = shapes.flatMap((one) => {
    const found = lately(one.unusable, nowMillis, limits)
    return found === undefined ? [] : [{ image: one.shape.image, runs: found.runs, why: found.why }]
  })
  return {
    ...(failure === undefined ? {} : { failure }),
    ...(unusable.length === 0 ? {} : { unusable: unusable.at(-1) })
  }
}

/** Returns the runs that could not use their sandboxes, unless the last one was long ago. */
const lately = (
  unusable: PoolState.Known["unusable"],
  nowMillis: number,
  { demandSecondsMax }: PoolPolicy.PoolLimits
) =>
  unusable !== undefined && unusable.atMillis > nowMillis - demandSecondsMax * 1000 ? unusable : undefined

const planOf = (
  { limits }: Pick<PoolState.PoolState, "limits">,
  shape: SandboxShape.SandboxShape,
  spec: Pick<SandboxSpec, "limits">
): WaitingEntry.Plan => {
  const { runtimeSecondsMax: _, stopGraceSecondsMax: __, ...fixed } = spec.limits
  return {
    key: SandboxShape.keyOf(shape),
    shape,
    limits: fixed,
    // It counts from the start of its container, and the pool from when it is ready.
    waitSecondsMax:
      limits.ageSecondsMax + waitSecondsMore + (shape.preload === undefined ? 0 : loadSecondsMax)
  }
}

/** Notes that some sandboxes of a shape are to wait always. */
const keep = Effect.fnUntraced(function* (
  state: PoolState.PoolState,
  { count, directory: path, supervised = false, ...input }: Kept,
  {
    checkLimits,
    examine,
    whyUnbound
  }: Pick<ContainerRuntime["Service"], "checkLimits"> &
    Pick<Workspace["Service"], "examine"> & { readonly whyUnbound: Effect.Effect<string | undefined> }
) {
  const spec = yield* Effect.mapError(
    decodeOpen(input),
    (error) => new InvalidSpec({ problems: problemsOf(error).map((problem) => `pool: ${problem}`) })
  )
  // Every start would fail, and every run of that shape is refused.
  yield* checkLimits?.({ role: "agent", limits: spec.limits }) ?? Effect.void
  const why = path === undefined ? undefined : yield* whyUnbound
  if (why !== undefined)
    return yield* Effect.logWarning(
      `no sandbox waits for ${path}, because directories cannot be bound: ${why}`
    )
  const directory =
    path === undefined || examine === undefined
      ? undefined
      : yield* Effect.orElseSucceed(Effect.scoped(examine(path)), () => undefined)
  // A run in it starts cold, and says itself what is wrong.
  if (path !== undefined && directory === undefined)
    return yield* Effect.logWarning(
      `no sandbox waits for ${path}, because it cannot be examined, or has mounts below it`
    )
  const plan = planOf(state, SandboxShape.make({ directory, spec, supervised }), spec)
  if (!Number.isInteger(count) || count < 0)
    return yield* invalid(`keep: count is ${count}, not a whole number of sandboxes`)
  // Sandboxes of one shape differ only in limits that a run sets again.
  const before = state.known.get(plan.key)?.demand.kept ?? 0
  state.known.set(plan.key, { ...plan, demand: { ...demandOf(plan), kept: before + count } })
})

/** The demand of a shape that no run has asked for. */
const demandOf = ({ shape }: Pick<WaitingEntry.Plan, "shape">): PoolPolicy.Demand => ({
  ...PoolPolicy.noDemand,
  loads: shape.preload !== undefined
})

const invalid = (problem: string) => Effect.fail(new InvalidSpec({ problems: [`pool: ${problem}`] }))

/** Returns the limits of a pool. Without a bound on its memory, there is enough for sandboxes without loaded code. */
const limitsOf = Effect.fnUntraced(function* ({ limits = {} }: PoolOptions) {
  const given = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined))
  const all: PoolPolicy.PoolLimits = { ...PoolPolicy.defaults, ...given }
  const wrong = Object.entries(all).find(([, value]) => !(Number.isFinite(value) && value >= 0))
  if (wrong !== undefined)
    return yield* invalid(`limits: ${wrong[0]} is ${wrong[1]}, not a number of at least 0`)
  if (all.ageSecondsMax > ageSecondsLimit)
    return yield* invalid(`limits: ageSecondsMax is ${all.ageSecondsMax}, more than ${ageSecondsLimit}`)
  return limits.memoryBytesMax === undefined
    ? { ...all, memoryBytesMax: Math.max(all.memoryBytesMax, all.sandboxesMax * PoolPolicy.sandboxBytes) }
    : all
})

/** Whether any sandbox may wait. */
const limitsAllow = ({ limits, makers }: PoolState.PoolState) =>
  makers !== undefined && limits.sandboxesMax >= 1

const networksMaxOf = ({ networksMax }: PoolOptions, { sandboxesMax }: PoolPolicy.PoolLimits) =>
  networksMax === undefined || (Number.isInteger(networksMax) && networksMax >= 0)
    ? Effect.succeed(networksMax ?? Math.floor(sandboxesMax))
    : invalid(`networksMax is ${networksMax}, not a whole number of networks`)

/** Longest time in the pool: what processes of other namespaces left is recognized by its age. */
const ageSecondsLimit = 3 * 3600

/** Refuses to keep more sandboxes than the pool has places for. */
const requirePlaces = ({ known, limits }: PoolState.PoolState) => {
  const kept = [...known.values()].reduce((sum, { demand }) => sum + demand.kept, 0)
  const shares = PoolPolicy.shares(
    {
      nowMillis: 0,
      memoryAvailableBytes: undefined,
      demand: new Map([...known].map(([key, { demand }]) => [key, demand])),
      waiting: []
    },
    limits
  )
  const places = [...shares.values()].reduce((sum, share) => sum + share, 0)
  return kept <= places
    ? Effect.void
    : invalid(
        `keep: ${kept} sandboxes are more than its limits allow (${places}). Raise sandboxesMax and memoryBytesMax`
      )
}

const claim = Effect.fnUntraced(function* (state: PoolState.PoolState, asked: SandboxShape.Asked) {
  const beganMillis = yield* MonotonicTime.nowMillis
  const plan = planOf(state, SandboxShape.make(asked), asked.spec)
  const reason = SandboxShape.coldReason(asked) ?? memoryReason(state, plan.key, asked.spec, beganMillis)
  if (reason !== undefined) {
    state.cold[reason] = (state.cold[reason] ?? 0) + 1
    yield* PoolMetrics.claimed("cold")
    yield* PoolMetrics.cold(reason)
    return { _tag: "Cold", use: reason } satisfies Cold
  }
  noteDemand(state, plan, beganMillis)
  const entry = yield* usable(state, plan)
  const nowMillis = yield* MonotonicTime.nowMillis
  yield* Queue.offer(state.wake, undefined)
  yield* PoolMetrics.waited((nowMillis - beganMillis) / 1000)
  if (entry === undefined) {
    state.counts.misses += 1
    yield* PoolMetrics.claimed("miss")
    return { _tag: "Cold", use: "miss" } satisfies Cold
  }
  const over = yield* Effect.acquireRelease(PoolState.noteStart(state, plan.shape), (ended) => ended)
  yield* PoolMetrics.aged((nowMillis - entry.sinceMillis) / 1000)
  return {
    _tag: "Warm",
    prepared: entry.prepared,
    bind: Effect.fnUntraced(function* (spec) {
      yield* Effect.addFinalizer(() => (entry.isEmpty ? Effect.void : entry.removeContainer))
      const container = yield* entry.container.bind(spec)
      const exit = Effect.tap(container.exit, ({ isEmpty }) =>
        Effect.sync(() => {
          entry.isEmpty = isEmpty === true
        })
      )
      // Counted when nothing can make the run start cold any more.
      const proceed = container.proceed.pipe(
        Effect.andThen(PoolMetrics.claimed("hit")),
        Effect.andThen(
          Effect.sync(() => {
            state.counts.hits += 1
            change(state, plan.key, ({ demand }) => ({
              demand: PoolPolicy.served(demand),
              unusable: undefined,
              removedWhy: undefined
            }))
          })
        ),
        Effect.andThen(over)
      )
      return { ...container, exit, proceed }
    }),
    discard: (error) =>
      Effect.flatMap(MonotonicTime.nowMillis, (failedMillis) => {
        // The run starts cold after all, so that a pool of no use is found.
        state.counts.misses += 1
        // Others may be unusable too, so all are looked at again.
        state.sweptMillis = -Infinity
        entry.isEmpty = true
        noteUnusable(state, plan, error, { claimedMillis: nowMillis, nowMillis: failedMillis })
        return Effect.andThen(over, discard(state, error.message, PoolState.endOf(state, entry))).pipe(
          Effect.andThen(entry.prepared.clean),
          Effect.andThen(PoolMetrics.claimed("failed")),
          Effect.andThen(Queue.offer(state.wake, undefined)),
          Effect.asVoid
        )
      })
  } satisfies Warm
})

/** Returns whether a run has too little memory for code that was loaded under the limit of a larger one. */
const memoryReason = (
  { known, limits }: PoolState.PoolState,
  key: string,
  spec: Pick<SandboxSpec, "limits">,
  nowMillis: number
) => {
  const demand = known.get(key)?.demand
  if (demand?.loads !== true) return undefined
  const measured = PoolPolicy.measuredAt(demand, nowMillis, limits)
  return measured.length > 0 &&
    spec.limits.memoryBytesMax < PoolPolicy.bytesOf({ loads: true, measured }) + PoolPolicy.sandboxBytes
    ? ("memory" as const)
    : undefined
}

/**
 * Returns the limits that a sandbox is created with. It loads code under the largest that a run asked for, so that
 * a run with small ones keeps no other from its sandbox.
 */
const widest = (
  { limits, shape }: WaitingEntry.Plan,
  before: WaitingSpec["limits"] | undefined
): WaitingSpec["limits"] =>
  before === undefined || shape.preload === undefined
    ? limits
    : {
        ...limits,
        memoryBytesMax: Math.max(limits.memoryBytesMax, before.memoryBytesMax),
        processesMax: Math.max(limits.processesMax, before.processesMax),
        cpusMax: Math.max(limits.cpusMax, before.cpusMax)
      }

/** Changes what is known of a shape. */
const change = (
  { known }: PoolState.PoolState,
  key: string,
  changed: (before: PoolState.Known) => Partial<PoolState.Known>
) => {
  const before = known.get(key)
  if (before !== undefined) known.set(key, { ...before, ...changed(before) })
}

/**
 * Notes that a run could not use a sandbox. The program that it had loaded may be the reason, and would be again. Only
 * a run that took its sandbox after the last of these is one more in a row: the engine may have failed several at once.
 */
const noteUnusable = (
  state: PoolState.PoolState,
  { key, shape }: Pick<WaitingEntry.Plan, "key" | "shape">,
  error: ContainerError | PostureMismatch,
  { claimedMillis, nowMillis }: { readonly claimedMillis: number; readonly nowMillis: number }
) =>
  change(state, key, ({ demand, unusable }) => {
    const before = lately(unusable, nowMillis, state.limits)
    const why = error._tag === "ContainerFailed" ? `${error.detail}. ${error.remedy}` : error.message
    const runs = (before?.runs ?? 0) + 1
    return {
      ...(isOfSandbox(error) && (before === undefined || claimedMillis > before.atMillis)
        ? { unusable: { runs, why, atMillis: nowMillis } }
        : {}),
      ...(shape.preload !== undefined && isNotLoaded(error)
        ? { demand: PoolPolicy.failed(demand, nowMillis), failure: error.message }
        : {})
    }
  })

/** Notes that a run asked for a shape. */
const noteDemand = ({ known, limits }: PoolState.PoolState, plan: WaitingEntry.Plan, nowMillis: number) => {
  const before = known.get(plan.key)
  const demand = PoolPolicy.arrived(before?.demand ?? demandOf(plan), nowMillis, limits)
  known.delete(plan.key)
  known.set(plan.key, { ...before, ...plan, limits: widest(plan, before?.limits), demand })
  // The map is in the order of the last arrival.
  const idle = [...known].find(([, { demand }]) => demand.kept === 0)
  if (known.size > shapesMax && idle !== undefined) known.delete(idle[0])
}

/** Takes entries of a shape until one can be used. The scope removes what was taken. */
const usable = Effect.fnUntraced(function* (state: PoolState.PoolState, plan: WaitingEntry.Plan) {
  for (;;) {
    const entry = yield* Effect.acquireRelease(take(state, plan), (taken) =>
      taken === undefined ? Effect.void : PoolState.release(state, taken)
    )
    if (entry === undefined || !(yield* entry.container.hasEnded)) return entry
    yield* PoolMetrics.drop("unusable")
    yield* PoolState.noteEnd(state, entry)
    entry.isEmpty = true
    // A broken container can take long to remove, and this run does not need its name.
    yield* discard(state, "it has ended", PoolState.release(state, entry))
  }
})

/** Takes the oldest entry of a shape, preferably one with the limits of the run, so that it needs no update. */
const take = ({ entries }: PoolState.PoolState, { key, limits }: WaitingEntry.Plan) =>
  Effect.suspend(() => {
    const fitting = [...entries.values()].filter((entry) => entry.key === key)
    const entry = fitting.find((one) => isSame(one.limits, limits)) ?? fitting[0]
    if (entry === undefined) return Effect.undefined
    entries.delete(entry.id)
    return Effect.as(PoolMetrics.changed(-1), entry)
  })

const isSame = (one: WaitingSpec["limits"], other: WaitingSpec["limits"]): boolean =>
  one.memoryBytesMax === other.memoryBytesMax &&
  one.processesMax === other.processesMax &&
  one.cpusMax === other.cpusMax

const discard = (state: PoolState.PoolState, why: string, removing: Effect.Effect<unknown>) =>
  Effect.suspend(() => {
    state.counts.discarded += 1
    return Effect.logWarning(`a waiting sandbox could not be used: ${why}`)
  }).pipe(Effect.andThen(removing), Effect.asVoid)
