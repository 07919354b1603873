/** Limits of connection stores: connections of an account, and entries of the audit of their uses. */
import { Context } from "effect"
import { ConnectionRefused } from "./ConnectionError.ts"

/** Maximum live connections of one account. */
export const connectionsMax = 100

/** Maximum removed connections of one account that are kept. */
export const removedMax = 100

/** Maximum connections in a list: live ones, and then those that were removed last. */
export const connectionsListedMax = connectionsMax + removedMax

/** An account has as many connections as it may have. */
export const tooMany: ConnectionRefused = new ConnectionRefused({
  issues: [{ path: [], message: `Expected at most ${connectionsMax} live connections of one account` }]
})

/** Entries of the audit that a store keeps. */
export interface UsesKeptShape {
  /** Older entries are deleted, in days. */
  readonly daysMax: number
  /** Maximum entries of one account. The oldest are deleted first. */
  readonly entriesMax: number
  /** Entries of one account in one process between two deletions. */
  readonly entriesBetween: number
}

/** Longest time for which an entry of the audit is kept, in days. */
export const usesKeptDaysMax = 365

/** Maximum entries of the audit that are kept for one account. */
export const usesKeptEntriesMax = 100_000

/** Default: {@link usesKeptDaysMax} and {@link usesKeptEntriesMax}. */
export const UsesKept = Context.Reference<UsesKeptShape>("@cogni/sandbox-connections/UsesKept", {
  defaultValue: () => ({ daysMax: usesKeptDaysMax, entriesMax: usesKeptEntriesMax, entriesBetween: 100 })
})
