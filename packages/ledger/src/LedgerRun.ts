/** A run in the ledger: who pays for it, and where a recovery finds what it used if its process dies. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Schema from "effect/Schema"
import { LedgerEntry } from "./LedgerEntry.ts"
import { Instant } from "./EntryFields.ts"

const { agentId, attempt, billingAccountId, graphId, userId, virtualKeyId } = LedgerEntry.fields

const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

export const LedgerRun = Schema.Struct({
  runId: RunId,
  attempt,
  billingAccountId,
  userId,
  graphId,
  agentId,
  virtualKeyId,
  /** Name of the upstream's profile. */
  upstream: Name,
  /** The model that the run asked for. */
  model: Name,
  /** Name of the machine, the same in every boot. Only its processes can read the audit. */
  host: Name,
  /** `ResourceLabels.formatOwner` of the process. */
  owner: Name,
  openedAt: Instant,
  /** After this time, a run whose process cannot be checked is over. */
  expiresAt: Instant,
  /** Directory on that machine with the audit. Absent if the proxy writes no audit of its calls. */
  directory: Schema.optionalKey(Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(4096)))
})

export type LedgerRun = typeof LedgerRun.Type

/** The key of a run. */
export type RunKey = Pick<LedgerRun, "attempt" | "runId">

export const keyOf = ({ attempt, runId }: RunKey): string => `${runId}/${attempt}`

/** A run with its end. */
export interface SettledRun extends LedgerRun {
  /** Absent while the run is open. */
  readonly closedAt?: string | undefined
  /** SHA-256 of the key that the upstream issued for this run alone. Absent while the run is open, and without one. */
  readonly runKeyHash?: string | undefined
}

/** A settled run with a key of its own. */
export interface KeyedRun extends SettledRun {
  readonly closedAt: string
  readonly runKeyHash: string
}

export const isKeyed = (run: SettledRun): run is KeyedRun =>
  run.closedAt !== undefined && run.runKeyHash !== undefined

/** Maximum number of runs in one answer of `openRuns` and of `keysDue`. */
export const openRunsMax = 10_000

export interface Appended {
  /** Number of entries that this call stored, corrections included. */
  readonly added: number
  /** The stored entries whose key and revision were taken before. The given ones were not stored. */
  readonly existing: ReadonlyArray<LedgerEntry>
}

export interface Settlement {
  readonly run: RunKey
  readonly entries: ReadonlyArray<LedgerEntry>
  readonly closedAt: string
  /** SHA-256 of the run's own key at the upstream, if it has one. */
  readonly runKeyHash?: string | undefined
}
