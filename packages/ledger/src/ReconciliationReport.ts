/** Result of a pass of reconciliation. */
import type { LedgerEntry } from "./LedgerEntry.ts"
import type { State } from "./EntryFields.ts"
import type { SpendRowsUnavailable } from "./SpendRows.ts"

/** Maximum number of findings in a report, and of warnings that a pass logs. */
export const findingsMax = 100

/** Result of a pass. */
export interface Report {
  /** Calls that were looked at. */
  readonly checked: number
  /** Verdicts that this pass recorded, by state. */
  readonly recorded: Readonly<Record<State, number>>
  /** Calls whose row may still come. */
  readonly waiting: number
  /** Calls whose rows could not be read, or which are beyond the limit of a pass. */
  readonly unread: number
  /** Calls of another upstream than the one whose rows are read. 0 if they were not counted. */
  readonly foreign: number
  readonly rows: number
  /** The recorded entries that differ or have no row, at most {@link findingsMax}. */
  readonly findings: ReadonlyArray<LedgerEntry>
  /** Checked calls that differ or have no row, whether recorded now or before. */
  readonly unresolved: number
  /** Why rows were not read: the first failure. */
  readonly failure?: SpendRowsUnavailable | undefined
  /** The pass ended at its time limit. Calls are left. */
  readonly truncated: boolean
}
