/** Limits of connection stores: connections of an account, and entries of the audit of their uses. */
import { Context } from "effect"
import { ConnectionRefused } from "./ConnectionReason.ts"
import type { ConnectionUse } from "./ConnectionUse.ts"

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
  /** Maximum entries of one account about credentials that were handed out. The oldest are deleted first. */
  readonly entriesMax: number
  /** Maximum entries of one account about credentials that were not. They do not displace the others. */
  readonly refusedMax: number
  /** Entries of one account in one process between two deletions. */
  readonly entriesBetween: number
}

/** Longest time for which an entry of the audit is kept, in days. */
const usesKeptDaysMax = 365

/** Maximum entries of the audit that are kept for one account, about credentials that were handed out. */
const usesKeptEntriesMax = 100_000

/** Maximum entries of the audit that are kept for one account, about credentials that were not handed out. */
const usesKeptRefusedMax = 10_000

/** Events without a credential. An agent can cause them as often as it likes. */
export const refusedEvents: ReadonlyArray<ConnectionUse["event"]> = ["denied", "failed"]

/** Default: {@link usesKeptDaysMax}, {@link usesKeptEntriesMax} and {@link usesKeptRefusedMax}. */
export const UsesKept = Context.Reference<UsesKeptShape>("@cogni/sandbox-connections/UsesKept", {
  defaultValue: () => ({
    daysMax: usesKeptDaysMax,
    entriesMax: usesKeptEntriesMax,
    refusedMax: usesKeptRefusedMax,
    entriesBetween: 100
  })
})
