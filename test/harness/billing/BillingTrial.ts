/**
 * Plays planned runs against a real LiteLLM with its PostgreSQL, and compares what was written about them.
 *
 * Meanwhile hosts are killed and their runs recovered, two reconcilers read rows that are not all there yet, and
 * LiteLLM restarts. In the end every run is over, every row is written, and every call has a verdict.
 */
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { entries, Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import { type Limits, limitsFor } from "@cogni/sandbox-ledger/ReconciliationLimits"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import { RunKeys } from "@cogni/sandbox-proxy/RunKeys"
import { Array as Arr, Deferred, Effect, Fiber, Layer, Redacted, Schedule, Stream } from "effect"
import * as Await from "../Await.ts"
import type { LiteLlmDatabase } from "../LiteLlmDatabase.ts"
import * as Pace from "../Pace.ts"
import * as RunHarness from "../RunHarness.ts"
import * as BillingHost from "./BillingHost.ts"
import type { PlannedRun } from "./BillingPlan.ts"
import * as BillingProof from "./BillingProof.ts"
import * as BillingRows from "./BillingRows.ts"

export interface TrialOptions {
  readonly lite: LiteLlmDatabase
  readonly plan: ReadonlyArray<PlannedRun>
  /** Runs at the same time. */
  readonly concurrency: number
  /** Restarts LiteLLM when half of the runs have begun. */
  readonly restarts: boolean
  readonly say?: ((text: string) => void) | undefined
}

export interface Trial extends BillingProof.Proof {
  /** Runs that were refused while LiteLLM was gone, and begun again. */
  readonly refused: number
  /** Aliases of the keys that are left in LiteLLM after the end. */
  readonly keysLeft: ReadonlyArray<string | null>
}

/** Runs whose host process is the same. */
const runsOfHost = 2

/** Rows are asked for as soon as calls are recorded. None is missing before the end. */
const early: Limits = { ...limitsFor(1), rowsDelaySeconds: 0, deadlineSeconds: 2 * Pace.hangMillis }

/** Every row is written, so one that does not exist is missing. */
const final: Limits = { ...early, deadlineSeconds: 0 }

const reconciledTwice = (limits: Limits, scope: Reconciler.Scope = {}) =>
  Effect.flatMap(Effect.all([Reconciler.make({ limits }), Reconciler.make({ limits })]), (both) =>
    Effect.all(
      both.map(({ reconcile }) => reconcile(scope)),
      { concurrency: 2 }
    )
  )

/** Two reconcilers at the same time, again and again. LiteLLM may be gone: then they change nothing. */
const meanwhile = Effect.repeat(Effect.orDie(reconciledTwice(early)), Schedule.spaced("3 seconds"))

/** Plays runs whose host process is killed in the middle of a call, and recovers them in two ways at once. */
const lost = (options: BillingHost.HostOptions, runs: ReadonlyArray<PlannedRun>) =>
  Effect.gen(function* () {
    const host = yield* BillingHost.start({ options, runs })
    yield* host.reached
    yield* host.kill
    yield* Effect.all([BillingHost.recover, BillingHost.recover], { concurrency: 2 })
    return { refused: 0 } satisfies BillingHost.Played
  }).pipe(Effect.scoped, Effect.orDie)

/** Waits until LiteLLM has written the rows of all calls so far: it writes them in the order of their ends. */
export const settled = Effect.fnUntraced(function* ({ ask, select }: LiteLlmDatabase) {
  for (const _again of [1, 2]) {
    const callId = crypto.randomUUID()
    const { body } = yield* ask(
      "POST",
      "/v1/chat/completions",
      { model: "chat", messages: [{ role: "user", content: "last" }], user: sentinel },
      { headers: { "x-litellm-call-id": callId } }
    )
    yield* Await.until(
      `LiteLLM has a row of its last call: ${JSON.stringify(body)}`,
      Effect.map(
        select(
          `SELECT 1 FROM "LiteLLM_SpendLogs" WHERE '${callId}' IN (request_id, metadata->>'litellm_call_id')`
        ),
        (found) => (found as ReadonlyArray<unknown>).length > 0
      )
    )
  }
})

/** End user of calls that are no run's. */
export const sentinel = "account-sentinel"

/** Runs in the order in which they begin. Those that lose their host come together with others of the same host. */
const groupsOf = (plan: ReadonlyArray<PlannedRun>): ReadonlyArray<ReadonlyArray<PlannedRun>> => {
  const losing = plan.filter(({ fate }) => fate === "loses its host")
  return [
    ...plan.filter(({ fate }) => fate !== "loses its host").map((run) => [run]),
    ...Arr.chunksOf(losing, runsOfHost)
  ].toSorted(([one], [other]) => one!.index - other!.index)
}

const playAll = Effect.fnUntraced(function* (options: TrialOptions, host: BillingHost.HostOptions) {
  const { concurrency, lite, plan, restarts, say = () => undefined } = options
  const half = yield* Deferred.make<void>()
  const restart = Effect.gen(function* () {
    yield* Deferred.await(half)
    if (!restarts) return
    say("LiteLLM stops")
    yield* lite.stop
    yield* lite.start
    say("LiteLLM is back")
  })
  let begun = 0
  let refused = 0
  const failures: Array<string> = []
  const playGroup = Effect.fnUntraced(function* (group: ReadonlyArray<PlannedRun>) {
    begun += group.length
    if (begun % 10 === 0) say(`${begun} of ${plan.length} runs`)
    if (begun * 2 >= plan.length) yield* Deferred.succeed(half, undefined)
    const [run] = group
    const played: BillingHost.Played =
      run!.fate === "loses its host"
        ? yield* lost(host, group)
        : yield* BillingHost.play(run!, host.directory)
    refused += played.refused
    if (played.failure !== undefined) failures.push(`run ${run!.index} failed: ${played.failure}`)
  })
  const reconciling = yield* Effect.forkChild(meanwhile)
  yield* Effect.all([restart, Effect.forEach(groupsOf(plan), playGroup, { concurrency, discard: true })], {
    concurrency: 2
  })
  yield* Fiber.interrupt(reconciling)
  return { refused, failures }
})

/** Compares all records of the runs below some directories. */
const prove = Effect.fnUntraced(function* ({ lite, plan }: TrialOptions, places: ReadonlyArray<string>) {
  const rows = (yield* BillingRows.rows(lite)).filter(({ end_user }) => end_user !== sentinel)
  const runs = yield* BillingRows.provenRuns(plan, places)
  const found = yield* Stream.runCollect(entries({ revisions: "all" }))
  return BillingProof.make({ runs, entries: found, rows })
})

const trial = Effect.fnUntraced(function* (options: TrialOptions, host: BillingHost.HostOptions) {
  const { lite, say = () => undefined } = options
  const { failures, refused } = yield* playAll(options, host)
  // Removes the containers and directories of hosts that were killed.
  yield* Effect.flatMap(DockerReaper.make, ({ reap }) => reap)
  yield* FileRunStore.make({ directory: host.directory, trafficOf: AuditTraffic.reader() }).reap
  yield* BillingHost.recover
  const ledger = yield* Ledger
  yield* Await.until(
    "every run is settled",
    Effect.map(ledger.openRuns(BillingHost.hostName), ({ length }) => length === 0)
  )
  say("waiting for the last row")
  yield* settled(lite)
  yield* Await.until(
    "each call has a verdict",
    Effect.map(reconciledTwice(final), (reports) =>
      reports.every(({ failure, unread, waiting }) => failure === undefined && unread + waiting === 0)
    )
  )
  // Once more over all calls: it must find nothing new.
  const [again] = yield* reconciledTwice(final, { which: "all" })
  const news = Object.values(again!.recorded).reduce((total, count) => total + count, 0)
  yield* (yield* RunKeys).reap
  const proof = yield* prove(options, [host.directory, yield* RunHarness.Directory])
  return {
    ...proof,
    refused,
    problems: [
      ...failures,
      ...(news === 0 ? [] : [`a second pass recorded ${news} verdicts`]),
      ...proof.problems
    ]
  }
})

export const play = Effect.fnUntraced(function* (options: TrialOptions) {
  const { lite } = options
  const deployment = `billing-${crypto.randomUUID().slice(0, 8)}`
  const name = `ledger_${crypto.randomUUID().slice(0, 8)}`
  yield* lite.database.database(name)
  const host: BillingHost.HostOptions = {
    url: lite.url,
    masterKey: lite.masterKey,
    ledgerUrl: lite.database.url(name),
    deployment,
    directory: yield* RunHarness.Directory
  }
  const proxy = BillingHost.proxyLayer(host)
  const runner = RunHarness.layer(proxy)
  const layers = Layer.merge(runner, Layer.provide(proxy, runner)).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        BillingHost.ledgerLayer(host.ledgerUrl),
        BillingHost.keysLayer(host),
        LiteLlmSpendRows.layer({ url: lite.url, key: Redacted.make(lite.masterKey) }).pipe(Layer.orDie)
      )
    )
  )
  const proven = yield* Effect.provide(trial(options, host), layers)
  // The gateway is closed, which has waited until the keys of its runs are deleted.
  const keys = yield* lite.keys(deployment)
  return { ...proven, keysLeft: keys.map(({ key_alias }) => key_alias) } satisfies Trial
}, Effect.provide(RunHarness.Directory.layer))
