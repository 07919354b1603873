/** `spend reconcile`: compares the ledger with the upstream's rows once, and reports what differs. */
import { key, type LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import type { Report } from "@cogni/sandbox-ledger/ReconciliationReport"
import { Effect, Layer } from "effect"
import { exitCode } from "./ExitCode.ts"
import { refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import type * as SpendFlags from "./SpendFlags.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import * as Reconciling from "./Reconciling.ts"
import { find, store } from "./RecordCommand.ts"
import { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

/** Exits with `findings` if a call differs or has no row, and with `unavailable` if rows could not be read. */
export const reconcile = Effect.fnUntraced(
  function* (input: Flags.Typed<typeof SpendFlags.reconcile>) {
    const { from, run, to } = input
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
    const { failure } = report
    if (input.output === "json") {
      // The failure is in the object, because standard output holds one document.
      if (failure !== undefined) {
        yield* Output.Output.use((output) => output.exitWith(exitCode.unavailable))
        yield* Output.note(oneLine(failure.message))
      }
      return yield* Output.json(toJson(report))
    }
    yield* Output.lines(describe(report))
    if (failure !== undefined)
      return yield* refusal("unavailable", `not all rows could be read: ${failure.detail}`, failure.remedy)
  },
  Effect.provide(Layer.unwrap(Effect.map(Settings, Reconciling.layer)).pipe(Layer.provideMerge(store)))
)

const findingJson = ({ attempt, detail, reason, runId, state, usageUnitId }: LedgerEntry) => ({
  runId,
  attempt,
  callId: usageUnitId,
  state,
  reason: reason ?? null,
  detail: detail ?? null
})

const toJson = ({ failure, findings, ...counts }: Report): object => ({
  ...counts,
  findings: findings.map(findingJson),
  failure: failure === undefined ? null : { code: failure.problem, message: failure.message }
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
    ...(truncated ? ["the pass ended at its time limit; repeat the command for the other calls"] : [])
  ]
}
