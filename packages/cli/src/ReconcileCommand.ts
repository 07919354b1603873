/** `spend reconcile`: compares the ledger with the upstream's rows once. Reports what differs or was not compared. */
import { type LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { key } from "@cogni/sandbox-ledger/EntryKey"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import { limitsFor } from "@cogni/sandbox-ledger/ReconciliationLimits"
import type { Report } from "@cogni/sandbox-ledger/ReconciliationReport"
import { Effect, Layer } from "effect"
import { exitCode } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import type * as SpendFlags from "./SpendFlags.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import * as Reconciling from "./Reconciling.ts"
import { find, store } from "./RecordCommand.ts"
import * as RunLedger from "./RunLedger.ts"
import { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

type ReconcileInput = Flags.Typed<typeof SpendFlags.reconcile>

/**
 * Settles the runs of dead processes, then compares. Exits with `findings` if a call differs or has no row, and with
 * `unavailable` if a call was not compared although its row may exist.
 */
export const reconcile = (input: ReconcileInput) =>
  compared(input).pipe(
    Effect.provide(Layer.unwrap(Effect.map(Settings, Reconciling.layer)).pipe(Layer.provideMerge(store)))
  )

/** The command, without the layers of its settings. */
export const compared = Effect.fnUntraced(function* (input: ReconcileInput) {
  const { from, run, to } = input
  const unsettled = yield* RunLedger.upToDate
  const runId = run === undefined ? undefined : (yield* find(run)).runId
  const isNarrow = runId !== undefined || from !== undefined || to !== undefined
  const { reconcile: pass } = yield* Reconciler.Reconciler
  const report = yield* pass({
    runId,
    from,
    to,
    which: isNarrow ? "all" : "missing",
    countsForeign: true
  }).pipe(
    Effect.mapError((error) =>
      error._tag === "LedgerRefused"
        ? refusal("usage", error.problems.join("; "), "See: cogni-sandbox spend reconcile --help")
        : refusal("unavailable", `the ledger ${error.detail}`, error.remedy)
    )
  )
  if (report.unresolved > 0) yield* Output.Output.use((output) => output.exitWith(exitCode.findings))
  const missed = incomplete(report, {
    isNarrow,
    unsettled: unsettled.filter((open) => runId === undefined || open.runId === runId).length
  })
  if (input.output === "json") {
    // The failure and the counts are in the object, because standard output holds one document.
    if (missed !== undefined) {
      yield* Output.Output.use((output) => output.exitWith(exitCode.unavailable))
      yield* Output.note(oneLine(missed.message))
    }
    return yield* Output.json(toJson(report, missed))
  }
  yield* Output.lines(describe(report))
  if (missed !== undefined) return yield* missed
})

/** Returns why calls were not compared, and what to do, or nothing if all were. */
const incomplete = (
  { failure, truncated, unread }: Report,
  { isNarrow, unsettled }: { readonly isNarrow: boolean; readonly unsettled: number }
): Refusal | undefined => {
  if (failure !== undefined)
    return refusal("unavailable", `not all rows could be read: ${failure.detail}`, failure.remedy)
  const { lookupsMax, passSecondsMax } = limitsFor()
  const limited = [
    ...(unread > 0
      ? [`${plural(unread, "call")} not read: a pass asks for at most ${lookupsMax} calls by their IDs`]
      : []),
    ...(truncated ? [`the pass ended at its limit of ${passSecondsMax} s, and calls are left`] : [])
  ]
  if (limited.length > 0)
    return refusal(
      "unavailable",
      limited.join("; "),
      isNarrow
        ? "Compare fewer calls at a time: --run, or --from and --to that are closer together"
        : "Repeat the command, or compare fewer calls at a time: --run, or --from and --to"
    )
  return unsettled === 0
    ? undefined
    : refusal(
        "unavailable",
        `${plural(unsettled, "run")} of dead processes could not be settled, so their calls are not compared`,
        "Correct what the warnings name, then repeat the command"
      )
}

const findingJson = ({ attempt, detail, reason, runId, state, usageUnitId }: LedgerEntry) => ({
  runId,
  attempt,
  callId: usageUnitId,
  state,
  reason: reason ?? null,
  detail: detail ?? null
})

const toJson = ({ failure, findings, ...counts }: Report, missed: Refusal | undefined): object => ({
  ...counts,
  findings: findings.map(findingJson),
  failure:
    missed === undefined
      ? null
      : { code: failure?.problem ?? "incomplete", message: failure?.message ?? missed.message }
})

/** Describes a pass for people: what differs, then what was done. */
export const describe = (report: Report): ReadonlyArray<string> => {
  const { checked, foreign, recorded, truncated, unread, unresolved, waiting } = report
  const parts = [
    `${recorded.matched} matched`,
    ...(recorded.estimated > 0 ? [`${recorded.estimated} without rows to compare with`] : []),
    ...(unresolved > 0 ? [`${unresolved} that differ or have no row`] : []),
    ...(waiting > 0 ? [`${waiting} whose row may still come`] : []),
    ...(unread > 0 ? [`${unread} not read`] : []),
    ...(foreign > 0 ? [`${foreign} of another upstream`] : [])
  ]
  return [
    ...report.findings.map(
      (entry) =>
        `${oneLine(key(entry))}: ${entry.state} (${entry.reason ?? "no reason"})${entry.detail === undefined ? "" : `: ${oneLine(entry.detail)}`}`
    ),
    `${plural(checked, "call")} checked: ${parts.join(", ")}`,
    ...(truncated ? ["the pass ended at its time limit, and calls are left"] : [])
  ]
}
