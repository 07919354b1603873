/**
 * The fields of a ledger's entries that other values share.
 */
import * as Schema from "effect/Schema"

/** A time in UTC, as `Date.toISOString` writes it, so that its text sorts by time. */
export const Instant = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/u, {
    expected: "a time in UTC, such as 2026-01-31T23:59:59.000Z"
  })
)

/** Where the cost of a call comes from. */
export const PriceSource = Schema.Literals([
  /** The upstream's answer. */
  "upstream",
  /** The host's prices, for the tokens that the upstream reported. */
  "prices",
  /** The reservation of the call, at the host's prices: the upstream did not report all tokens. */
  "reservation",
  /** The upstream's spend rows. */
  "row",
  /** The call costs nothing: it counts tokens, or it ended before a model could run. */
  "free",
  /** The cost is unknown. */
  "none"
])

export type PriceSource = typeof PriceSource.Type

export const State = Schema.Literals([
  /** Not yet compared with the upstream's rows. */
  "pending",
  /** The upstream's rows agree. */
  "matched",
  /** The upstream's rows differ. */
  "drifted",
  /** The upstream has no row. */
  "missing",
  /** Charged as reserved, because the upstream did not report all figures. */
  "estimated"
])

export type State = typeof State.Type

/** Reasons that this package gives. Reconciliation has more. */
export const reasons = {
  /** The audit has no end of the call: its process died, or the call had not ended when the audit was read. */
  callOpen: "call_open",
  /** The upstream did not report all tokens. */
  usageMissing: "usage_missing",
  /** No price is known for the model, and the upstream reported no cost. */
  noPrice: "no_price",
  /** The call ended before a model could run. */
  notRun: "not_run",
  /** The request asks for no model: it counts tokens or lists models. Nothing is charged, and there is no row. */
  noModel: "no_model",
  /** The proxy of the call does not read answers. */
  notTold: "not_told",
  /** A part of the audit cannot be trusted: the number and the cost of its calls are unknown. */
  auditBroken: "audit_broken",
  /** There is no audit, or it cannot be read: the number and the cost of the calls are unknown. */
  auditMissing: "audit_missing",
  /** There were more calls than the proxy lists. */
  notListed: "not_listed"
} as const

/** Unit of an entry for calls whose number is unknown. No call has this ID. */
export const unknownUnitId = "unknown"
