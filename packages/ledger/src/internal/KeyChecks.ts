/**
 * Checks all rows of the keys of settled runs: after the end of the run, and after the key has expired.
 *
 * The rows of a pass are near the calls that it compares. So a pass alone does not see a key that is used at another
 * time, or a second row of a call that has a verdict.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import { openRunsMax } from "../LedgerRun.ts"
import type { LedgerRefused, LedgerUnavailable } from "../LedgerError.ts"
import { unitsMax } from "../LedgerQuery.ts"
import type { KeyedRun } from "../LedgerRun.ts"
import * as Reconciliation from "../Reconciliation.ts"
import type { SpendRow } from "../SpendRows.ts"
import { append, type Judged, noted, type PassContext, record } from "./ReconciliationPass.ts"
import { isEmptyFailure } from "./RowFigures.ts"
import * as RowPlan from "./RowPlan.ts"
import * as RunKeyRows from "./RunKeyRows.ts"
import * as UnknownCalls from "./UnknownCalls.ts"

/** Keys that are checked at the same time. */
const concurrency = 4

/** Time that the checks of a pass have at least, in seconds, however long its calls took. */
const secondsMin = 60

/** Keys whose rows cannot be read, after which a pass asks for no more. */
const failuresMax = 8

/** Pause after a key that could not be checked, in seconds. Others come first meanwhile. */
const pauseSeconds = 600

/** Checks the keys that are due. */
export const checkDue = Effect.fnUntraced(function* (context: PassContext) {
  const { ledger, limits, pass, spend } = context
  if (!spend.abilities.runKeys) return
  const nowMs = yield* Clock.currentTimeMillis
  const before = new Date(nowMs - (limits.deadlineSeconds + limits.clockSkewSecondsMax) * 1000).toISOString()
  const again = new Date(nowMs + pauseSeconds * 1000).toISOString()
  const endsMs = Math.max(context.endsMs, nowMs + secondsMin * 1000)
  const due = yield* ledger.keysDue(before)
  if (due.length === openRunsMax) pass.truncated = true
  let failures = 0
  yield* Effect.forEach(
    due.filter(({ upstream }) => upstream === spend.upstream),
    Effect.fnUntraced(function* (run) {
      if (failures >= failuresMax || (yield* Clock.currentTimeMillis) > endsMs) {
        pass.truncated = true
        return
      }
      switch (yield* check(context, run)) {
        case "done":
          return yield* ledger.keyChecked(run, run.expiresAt < before ? undefined : run.expiresAt)
        case "unread":
          failures += 1
          return yield* ledger.keyChecked(run, again)
        case "waiting":
          return yield* ledger.keyChecked(run, again)
        // The next pass goes on.
        case "partial":
          pass.truncated = true
      }
    }),
    { concurrency, discard: true }
  )
})

/** Checks the key of one run, whether it is due or not. */
export const checkNow = Effect.fnUntraced(function* (context: PassContext, run: KeyedRun) {
  const outcome = yield* check(context, run)
  if (outcome === "partial") context.pass.truncated = true
})

/**
 * Checks all rows of a key. `partial`: more rows are to be reported. `waiting`: calls without a verdict may explain
 * rows.
 */
const check = Effect.fnUntraced(function* (
  context: PassContext,
  run: KeyedRun
): Effect.fn.Return<"done" | "partial" | "unread" | "waiting", LedgerRefused | LedgerUnavailable> {
  const { ledger, limits, pass, spend } = context
  const { runKeyHash } = run
  const nowMs = yield* Clock.currentTimeMillis
  const window = RowPlan.validityOf(run, limits)
  const read = yield* Effect.result(
    spend
      .rowsOf({ _tag: "RunKey", runKeyHash, window })
      .pipe(Stream.take(limits.rowsMax + 1), Stream.runCollect)
  )
  if (Result.isFailure(read)) {
    // This failure is of one key. Whether the upstream is gone is seen by those of others.
    const { stopped } = pass
    noted(pass, read.failure)
    pass.stopped = stopped
    return "unread"
  }
  const rows = read.success.slice(0, limits.rowsMax)
  pass.rows += rows.length
  const isBeyond = read.success.length > limits.rowsMax
  const now = new Date(nowMs).toISOString()
  yield* record(context, yield* repeatedCalls(context, run, rows))
  const found = yield* UnknownCalls.find(ledger, { run, runKeyHash, rows }, { known: new Set(), now })
  yield* append(context, [
    ...found.entries,
    ...(isBeyond ? [UnknownCalls.beyondEntry(run, runKeyHash, limits.rowsMax, now)] : [])
  ])
  if (found.isCut) return "partial"
  return found.waiting > 0 ? "waiting" : "done"
})

/** Judges calls with more than one row that counts. Their verdict may be from before the second row came. */
const repeatedCalls = Effect.fnUntraced(function* (
  { ledger, limits }: PassContext,
  { runId }: KeyedRun,
  rows: ReadonlyArray<SpendRow>
) {
  const nowMs = yield* Clock.currentTimeMillis
  const counted = rows.filter((row) => !isEmptyFailure(row) && RunKeyRows.isCall(RunKeyRows.idOf(row)))
  const rowsOfCall = Map.groupBy(counted, RunKeyRows.idOf)
  const units = [...rowsOfCall]
    .filter(([unit, some]) => some.length > 1 && unit.length <= RunKeyRows.unitCharactersMax)
    .map(([unit]) => unit)
  const verdicts: Array<Judged> = []
  for (let start = 0; start < units.length; start += unitsMax) {
    const { entries } = yield* ledger.list({ runId, usageUnitIds: units.slice(start, start + unitsMax) })
    for (const entry of entries) {
      const verdict = Reconciliation.judge(entry, rowsOfCall.get(entry.usageUnitId) ?? [], nowMs, limits)
      if (verdict !== undefined) verdicts.push([entry, verdict])
    }
  }
  return verdicts
})
