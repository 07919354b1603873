/**
 * Reconciles the ledger with the upstream's rows: finds the row of each call, and records what it says.
 *
 * A pass may be repeated, by any process and at the same time. A verdict becomes the next revision of its entry, which
 * the ledger stores once, so one process records, counts and reports it. A pass that cannot read rows changes nothing:
 * a call is missing only if the upstream answered, and had no row for its ID.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as KeyChecks from "./internal/KeyChecks.ts"
import * as ReconciliationMetrics from "./internal/ReconciliationMetrics.ts"
import * as ReconciliationPass from "./internal/ReconciliationPass.ts"
import { Ledger } from "./Ledger.ts"
import type { LedgerRefused, LedgerUnavailable } from "./LedgerError.ts"
import { type LedgerEntry } from "./LedgerEntry.ts"
import { key } from "./EntryKey.ts"
import { type State } from "./EntryFields.ts"
import { isKeyed } from "./LedgerRun.ts"
import { type Limits, limitsFor } from "./ReconciliationLimits.ts"
import type { Report } from "./ReconciliationReport.ts"
import { type PriceOf, SpendRows } from "./SpendRows.ts"

/** Scope of a pass. Absent fields select all. */
export interface Scope {
  readonly runId?: string | undefined
  /** Calls that began at this time or later: ISO 8601 in UTC, with milliseconds. */
  readonly from?: string | undefined
  /** Calls that began before this time. */
  readonly to?: string | undefined
  /**
   * Default: `open`, the calls without a verdict. `missing` adds those without a row. `all` checks every call again, which
   * finds a second row that came later.
   */
  readonly which?: "open" | "missing" | "all" | undefined
  /** Also counts the calls of other upstreams, with one more query (default: no). */
  readonly countsForeign?: boolean | undefined
}

interface Options {
  readonly limits?: Limits | undefined
  readonly priceOf?: PriceOf | undefined
}

export class Reconciler extends Context.Service<
  Reconciler,
  {
    /** Reconciles once. Never fails because of the upstream: `failure` of the report says what could not be read. */
    readonly reconcile: (scope?: Scope) => Effect.Effect<Report, LedgerRefused | LedgerUnavailable>
  }
>()("@cogni/sandbox-ledger/Reconciler") {}

/** States that a pass looks at. Without rows, an estimated call can never be known better. */
const statesOf: Readonly<Record<NonNullable<Scope["which"]>, ReadonlyArray<State>>> = {
  open: ["pending", "estimated"],
  missing: ["pending", "estimated", "missing"],
  all: ["pending", "estimated", "missing", "drifted", "matched"]
}

export const make = Effect.fnUntraced(function* (options: Options = {}) {
  const ledger = yield* Ledger
  const spend = yield* SpendRows
  const limits = options.limits ?? limitsFor()

  const reconcile = Effect.fn("Reconciler.reconcile")(function* (scope: Scope = {}) {
    const beganMs = yield* Clock.currentTimeMillis
    const pass = ReconciliationPass.begin()
    const { countsForeign = false, from, runId, to, which = "open" } = scope
    const everywhere = {
      ...(runId === undefined ? {} : { runId: runId as LedgerEntry["runId"] }),
      ...(from === undefined ? {} : { from }),
      ...(to === undefined ? {} : { to }),
      states:
        which === "open" && !ReconciliationPass.keepsRows(spend) ? (["pending"] as const) : statesOf[which]
    }
    if (countsForeign) {
      const { sums } = yield* ledger.sums({ by: "upstream", filter: everywhere })
      for (const { calls, group } of sums) if (group !== spend.upstream) pass.foreign += calls
    }
    const filter = { ...everywhere, upstream: spend.upstream }
    const endsMs = beganMs + limits.passSecondsMax * 1000
    const context = { endsMs, ledger, limits, pass, priceOf: options.priceOf, spend }
    let after: string | undefined
    let last: string | undefined
    do {
      const page = yield* ledger.list(filter, after === undefined ? {} : { after })
      // A correction of the last call of a page is the first one of the next.
      const entries = page.entries.filter((entry, index) => index > 0 || key(entry) !== last)
      yield* ReconciliationPass.page(context, entries)
      last = page.entries.length === 0 ? undefined : key(page.entries.at(-1)!)
      after = page.next
      pass.truncated = after !== undefined && (yield* Clock.currentTimeMillis) > endsMs
    } while (after !== undefined && !pass.truncated && !pass.stopped)
    yield* checkKeys(context, runId)
    yield* ReconciliationMetrics.passed(pass)
    return ReconciliationPass.report(pass)
  })

  /** Checks the keys that are due, or all keys of one run. */
  const checkKeys = Effect.fnUntraced(function* (
    context: ReconciliationPass.PassContext,
    runId: string | undefined
  ) {
    if (runId === undefined) return yield* KeyChecks.checkDue(context)
    const runs = spend.abilities.runKeys ? (yield* ledger.attempts(runId)).filter(isKeyed) : []
    for (const run of runs) if (run.upstream === spend.upstream) yield* KeyChecks.checkNow(context, run)
  })

  return Reconciler.of({ reconcile })
})

export const layer = (options: Options = {}): Layer.Layer<Reconciler, never, Ledger | SpendRows> =>
  Layer.effect(Reconciler, make(options))

/** How often calls without a row are asked for again, and for how long after they began. */
const healing = { everyPasses: 10, secondsMax: 86_400 }

/**
 * Reconciles in the background, with a pause between passes. Never fails: a failure is a warning, once until it
 * changes. Calls without a row are asked for again for a day, because a row may come after its deadline.
 */
export const repeated = Effect.fnUntraced(function* (
  pauseSeconds: number
): Effect.fn.Return<never, never, Reconciler> {
  const { reconcile } = yield* Reconciler
  let warned: string | undefined
  let passes = 0
  const scopeOf = (nowMs: number): Scope =>
    passes++ % healing.everyPasses === 0
      ? { which: "missing", from: new Date(nowMs - healing.secondsMax * 1000).toISOString() }
      : {}
  const pass = Effect.gen(function* () {
    const scope = scopeOf(yield* Clock.currentTimeMillis)
    const problem = yield* reconcile(scope).pipe(
      Effect.map(({ failure }) => failure?.message),
      Effect.catch(({ message }) => Effect.succeed(message)),
      // A row that this version cannot read, or a price list that throws, must not end reconciliation for good.
      Effect.catchDefect((defect) => Effect.succeed(`a fault: ${String(defect)}`))
    )
    if (problem !== undefined && problem !== warned)
      yield* Effect.logWarning(`calls are not reconciled: ${problem}`)
    warned = problem
  })
  return yield* Effect.forever(Effect.andThen(pass, Effect.sleep(Duration.seconds(pauseSeconds))))
})
