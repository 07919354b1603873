/**
 * The keys of a ledger's entries, and the form in which two entries are compared.
 */
import * as MoneySums from "./MoneySums.ts"
import type { LedgerEntry } from "./LedgerEntry.ts"

/** Names a call: all its revisions have this key. */
export const key = (entry: Pick<LedgerEntry, "attempt" | "runId" | "usageUnitId">): string =>
  `${entry.runId}/${entry.attempt}/${entry.usageUnitId}`

/** Names one revision of a call. A ledger holds at most one entry for each. */
export const revisionKey = (
  entry: Pick<LedgerEntry, "attempt" | "revision" | "runId" | "usageUnitId">
): string => `${key(entry)}#${entry.revision}`

/** Returns an entry as every ledger stores it: amounts in whole pico-dollars. */
export const normalized = (entry: LedgerEntry): LedgerEntry => ({
  ...entry,
  ...(entry.costUsd === undefined ? {} : { costUsd: MoneySums.rounded(entry.costUsd) }),
  ...(entry.reservedUsd === undefined ? {} : { reservedUsd: MoneySums.rounded(entry.reservedUsd) })
})
