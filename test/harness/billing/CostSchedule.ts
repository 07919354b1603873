/**
 * Schedules of crashes, retries and late rows for sealed runs: whatever happens, each call is charged once.
 *
 * A schedule plays two runs in containers, from a host process that is killed when its upstream has a certain number of
 * calls. Their next attempts begin in another host process, while recoveries settle the dead one's runs, and
 * reconcilers read rows that are late, or come twice. A ledger that answers too late makes them repeat their work. In
 * the end the upstream knows which calls there were: the ledger must have exactly these.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import { entries, Ledger } from "@cogni/sandbox-ledger/Ledger"
import { unknownUnitId } from "@cogni/sandbox-ledger/EntryFields"
import { LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import { type Limits, limitsFor } from "@cogni/sandbox-ledger/ReconciliationLimits"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import { Deferred, Effect, Fiber, Layer, Random, Redacted, Stream } from "effect"
import { join } from "node:path"
import * as Await from "../Await.ts"
import { docker } from "../Docker.ts"
import * as Engine from "../Engine.ts"
import * as LiteLlmRows from "../LiteLlmRows.ts"
import * as Pace from "../Pace.ts"
import * as RunHarness from "../RunHarness.ts"
import * as BillingHost from "./BillingHost.ts"
import { type PlannedCall, paths, type PlannedRun, stepsOf } from "./BillingPlan.ts"
import * as BillingProof from "./BillingProof.ts"
import * as BillingRows from "./BillingRows.ts"
import * as MeteredUpstream from "./MeteredUpstream.ts"

/** A disturbance of the runs when the upstream receives a certain call. */
export interface Disturbance {
  readonly kind: "recover" | "reconcile" | "reconcile impatiently" | "kill the containers"
  readonly atCall: number
  /** The ledger does not answer one operation: before it took effect, or after. */
  readonly fault: "none" | "before" | "answer lost"
}

export interface CostSchedule {
  /** Runs of the first host. */
  readonly runs: ReadonlyArray<PlannedRun>
  /** The host is killed when the upstream receives this call. Absent: it ends by itself. */
  readonly hostKilledAt: number | undefined
  /** Another host begins their next attempts. */
  readonly retries: boolean
  readonly disturbances: ReadonlyArray<Disturbance>
  readonly rowTimes: ReadonlyArray<MeteredUpstream.RowTime>
}

const runsOfHost = 2
const callsMax = 6

const call = Effect.gen(function* () {
  const stream = yield* Random.nextBoolean
  const part = yield* Random.next
  const body = { model: "priced", stream, messages: [{ role: "user", content: "hello" }], max_tokens: 200 }
  const made: PlannedCall = { path: paths.chat, body }
  return part < 0.2 ? { ...made, hangUp: { millis: yield* Random.nextIntBetween(0, 60) } } : made
})

const run = Effect.fnUntraced(function* (index: number) {
  const length = yield* Random.nextIntBetween(2, callsMax)
  const calls = yield* Effect.forEach(Array.from({ length }), () => call)
  const made: PlannedRun = {
    index,
    billingAccountId: `account-${yield* Random.nextIntBetween(1, 3)}`,
    fate: (yield* Random.next) < 0.2 ? "is killed" : "ends",
    isSealed: true,
    steps: yield* stepsOf(calls),
    killedAt: yield* Random.nextIntBetween(0, length - 1)
  }
  return made
})

const disturbance = Effect.gen(function* () {
  const made: Disturbance = {
    kind: yield* Random.choice([
      "recover",
      "recover",
      "reconcile",
      "reconcile",
      "reconcile impatiently",
      "kill the containers"
    ] as const),
    atCall: yield* Random.nextIntBetween(0, 2 * callsMax),
    fault: yield* Random.choice(["none", "none", "before", "answer lost"] as const)
  }
  return made
})

/** Makes the schedule of a seed. Three of four kill their host. */
export const make = (seed: string): Effect.Effect<CostSchedule> =>
  Effect.gen(function* () {
    const runs = yield* Effect.forEach(
      Array.from({ length: runsOfHost }, (_, index) => index),
      run
    )
    const isKilled = (yield* Random.next) < 0.75
    const some = yield* Random.nextIntBetween(2, 6)
    return {
      runs,
      hostKilledAt: isKilled ? yield* Random.nextIntBetween(0, callsMax) : undefined,
      retries: isKilled,
      disturbances: yield* Effect.forEach(Array.from({ length: some }), () => disturbance),
      rowTimes: yield* Effect.forEach(Array.from({ length: 7 }), () =>
        Random.choice(["prompt", "prompt", "late", "twice"] as const)
      )
    }
  }).pipe(Random.withSeed(seed))

/** Rows are asked for at once. None is missing before the end, unless a reconciler is impatient. */
const patient: Limits = { ...limitsFor(1), rowsDelaySeconds: 0, deadlineSeconds: 2 * Pace.hangMillis }
const impatient: Limits = { ...patient, deadlineSeconds: 0 }

const gone = new LedgerUnavailable({ detail: "did not answer", remedy: "Try again" })

/** A ledger whose first operation that stores something has a fault. */
const faulty = (ledger: Ledger["Service"], fault: Disturbance["fault"]): Ledger["Service"] => {
  let isNext = fault !== "none"
  const once = <A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E | LedgerUnavailable> =>
    Effect.suspend(() => {
      if (!isNext) return work
      isNext = false
      return fault === "before" ? Effect.fail(gone) : Effect.andThen(work, Effect.fail(gone))
    })
  return Ledger.of({
    ...ledger,
    append: (given) => once(ledger.append(given)),
    settle: (settlement) => once(ledger.settle(settlement))
  })
}

const reconcile = (limits: Limits, scope?: Reconciler.Scope) =>
  Effect.flatMap(Reconciler.make({ limits }), (made) => made.reconcile(scope))

const killContainers = Effect.fnUntraced(function* (runs: ReadonlyArray<string>) {
  for (const runId of runs) {
    const found = yield* docker("ps", "--quiet", "--filter", `label=${label.run}=${runId}`)
    // It may end by itself meanwhile.
    if (found !== "") yield* Effect.ignoreCause(docker("kill", ...found.split("\n")))
  }
})

const disturb = Effect.fnUntraced(function* ({ fault, kind }: Disturbance, directory: string) {
  const ledger = yield* Ledger
  const work =
    kind === "recover"
      ? Effect.asVoid(BillingHost.recover)
      : kind === "kill the containers"
        ? killContainers(BillingRows.runIdsIn(directory))
        : Effect.asVoid(reconcile(kind === "reconcile" ? patient : impatient))
  // The next one repeats failed work, as in a host.
  yield* Effect.ignore(Effect.provideService(work, Ledger, faulty(ledger, fault)))
})

/** Plays the hosts of a schedule, with its disturbances. */
const playHosts = Effect.fnUntraced(function* (
  schedule: CostSchedule,
  upstream: MeteredUpstream.MeteredUpstream,
  options: BillingHost.HostOptions
) {
  const killed = yield* Deferred.make<void>()
  const reached = yield* Effect.forEach(schedule.disturbances, () => Deferred.make<void>())
  upstream.onCall = (number) => {
    schedule.disturbances.forEach(({ atCall }, index) => {
      if (number >= atCall) Deferred.doneUnsafe(reached[index]!, Effect.void)
    })
    if (schedule.hostKilledAt !== undefined && number >= schedule.hostKilledAt)
      Deferred.doneUnsafe(killed, Effect.void)
  }
  const disturbing = yield* Effect.forEach(schedule.disturbances, (one, index) =>
    Effect.forkChild(Effect.andThen(Deferred.await(reached[index]!), disturb(one, options.directory)))
  )
  const first = yield* BillingHost.start({ options, runs: schedule.runs })
  yield* Effect.raceFirst(first.ended, Deferred.await(killed))
  yield* first.kill
  if (schedule.retries) {
    const runs = schedule.runs.map((one) => ({ ...one, index: one.index + runsOfHost, attempt: 1 }))
    const next = yield* BillingHost.start({ options, runs })
    yield* next.ended
  }
  // Those that no call has reached happen now, all at once.
  for (const one of reached) Deferred.doneUnsafe(one, Effect.void)
  yield* Fiber.joinAll(disturbing)
}, Effect.scoped)

/** Removes what killed hosts have left. Returns what is left all the same. */
const reaped = Effect.fnUntraced(function* (directory: string) {
  yield* DockerReaper.DockerReaper.use(({ reap }) => reap)
  const runs = new Set<string | undefined>(BillingRows.runIdsIn(directory))
  const found = yield* DockerApi.DockerApi.use((api) => api.labelled(label.run))
  return found
    .filter(({ labels }) => runs.has(labels[label.run]))
    .map(({ kind, name }) => `${kind} ${name} is left`)
})

/** Compares the ledger with the upstream: all calls that it received, and no others that cost anything. */
const compared = Effect.fnUntraced(function* (
  schedule: CostSchedule,
  upstream: MeteredUpstream.MeteredUpstream,
  directory: string
) {
  const plan = [0, runsOfHost].flatMap((more) =>
    schedule.runs.map((one) => ({ ...one, index: one.index + more }))
  )
  const found = yield* Stream.runCollect(entries({ revisions: "all" }))
  const runs = yield* BillingRows.provenRuns(plan, [directory])
  const proof = BillingProof.make({ runs, entries: found, rows: yield* upstream.rows })
  const problems = [...proof.problems]
  const received = new Set(upstream.received)
  if (received.size < upstream.received.length) problems.push("the upstream received a call ID twice")
  const known = new Set(found.map(({ usageUnitId }) => usageUnitId))
  for (const callId of received) if (!known.has(callId)) problems.push(`call ${callId} is lost`)
  for (const { state, usageUnitId } of yield* Stream.runCollect(entries({})))
    if (
      usageUnitId !== unknownUnitId &&
      !received.has(usageUnitId) &&
      state !== "missing" &&
      state !== "matched"
    )
      problems.push(`call ${usageUnitId} never reached the upstream, and is ${state}`)
  return { ...proof, problems, received: received.size }
})

/** Plays a schedule. `problems` of the result must be empty. Removes what the killed hosts have left. */
export const play = Effect.fnUntraced(
  function* (schedule: CostSchedule) {
    const directory = yield* RunHarness.Directory
    const upstream = yield* MeteredUpstream.acquire(schedule.rowTimes)
    const options: BillingHost.HostOptions = {
      url: upstream.url,
      masterKey: LiteLlmRows.adminKey,
      ledgerUrl: join(directory, "ledger.db"),
      directory
    }
    const layers = Layer.mergeAll(
      BillingHost.ledgerLayer(options.ledgerUrl),
      Layer.orDie(LiteLlmSpendRows.layer({ url: upstream.url, key: Redacted.make(LiteLlmRows.adminKey) }))
    )
    return yield* Effect.gen(function* () {
      yield* playHosts(schedule, upstream, options)
      const left = yield* reaped(directory)
      // A settlement may have failed for its fault, so recover until all runs are settled.
      const ledger = yield* Ledger
      yield* Await.until(
        "every run is settled",
        Effect.andThen(
          BillingHost.recover,
          Effect.map(ledger.openRuns(BillingHost.hostName), ({ length }) => length === 0)
        )
      )
      yield* upstream.writeAll
      yield* Effect.all([reconcile(impatient, { which: "all" }), reconcile(impatient, { which: "all" })], {
        concurrency: 2
      })
      const again = yield* reconcile(impatient, { which: "all" })
      const news = Object.values(again.recorded).reduce((total, count) => total + count, 0)
      const result = yield* compared(schedule, upstream, directory)
      const more = news === 0 ? [] : [`a second pass recorded ${news} verdicts`]
      return { ...result, problems: [...left, ...more, ...result.problems] }
    }).pipe(Effect.provide(layers))
  },
  Effect.scoped,
  Effect.provide(
    Layer.merge(
      RunHarness.Directory.layer,
      DockerReaper.layerApi().pipe(Layer.provideMerge(Engine.api()), Layer.orDie)
    )
  )
)
