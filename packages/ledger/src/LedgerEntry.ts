/**
 * Entries of the ledger: what one call to a model used and cost, and how certain that is.
 *
 * An entry never changes. A correction is a further entry of the same call with the next revision. The newest revision
 * counts, so the older ones show what was known before.
 */
import { LlmOutcome } from "@cogni/sandbox-core/RunResult"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Schema from "effect/Schema"
import * as Money from "./Money.ts"

/** Maximum tokens of one kind that an entry accepts. */
const tokensMax = 1e12

/** Maximum number of corrections of one call. */
const revisionMax = 1000

const Tokens = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: tokensMax }))
const Usd = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: Money.callUsdMax }))

/** Names that a host or an upstream gave. */
const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

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

export const LedgerEntry = Schema.Struct({
  runId: RunId,
  attempt: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 })),
  /** Our ID of the call, which the upstream logs too. */
  usageUnitId: Name,
  /** The upstream's own ID of the call, for an upstream that does not log ours. Its record has this ID. */
  upstreamCallId: Schema.optionalKey(Name),
  /** 0 for the first entry of a call; corrections count up. */
  revision: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: revisionMax })),
  /** When the call began. */
  at: Instant,
  recordedAt: Instant,
  billingAccountId: Name,
  userId: Schema.optionalKey(Name),
  graphId: Schema.optionalKey(Name),
  agentId: Schema.optionalKey(Name),
  /** Key of the caller at the host, such as the ID of a grant. */
  virtualKeyId: Schema.optionalKey(Name),
  /** SHA-256 of the key that the upstream issued for this run alone. Its rows name it. */
  runKeyHash: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/u))),
  /** Name of the upstream's profile. */
  upstream: Name,
  /** The model's name at the upstream. */
  model: Name,
  /** All input tokens, including those read from or written to a cache. */
  inputTokens: Schema.optionalKey(Tokens),
  outputTokens: Schema.optionalKey(Tokens),
  cacheReadTokens: Schema.optionalKey(Tokens),
  cacheWriteTokens: Schema.optionalKey(Tokens),
  cacheWrite1hTokens: Schema.optionalKey(Tokens),
  /** Charge of the account, to a pico-dollar. Absent if unknown: never 0 for an unknown cost. */
  costUsd: Schema.optionalKey(Usd),
  currency: Schema.Literal("USD"),
  priceSource: PriceSource,
  /** Reservation before the call was sent. Absent if the model had no price. */
  reservedUsd: Schema.optionalKey(Usd),
  streamed: Schema.Boolean,
  /** How the call ended. Absent if that is unknown. */
  outcome: Schema.optionalKey(LlmOutcome),
  state: State,
  /** Code of the explanation: one of {@link reasons}, or of reconciliation. */
  reason: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^[a-z0-9_]{1,64}$/u))),
  /** Explanation for people. */
  detail: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(500)))
}).check(
  Schema.makeFilter((entry) =>
    (entry.costUsd === undefined) === (entry.priceSource === "none")
      ? undefined
      : {
          path: ["costUsd"],
          issue: "Expected a cost exactly if its source is known: an unknown cost is absent, never 0"
        }
  )
)

export type LedgerEntry = typeof LedgerEntry.Type

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
  ...(entry.costUsd === undefined ? {} : { costUsd: Money.rounded(entry.costUsd) }),
  ...(entry.reservedUsd === undefined ? {} : { reservedUsd: Money.rounded(entry.reservedUsd) })
})
