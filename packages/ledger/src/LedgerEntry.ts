/**
 * Entries of the ledger: what one call to a model used and cost, and how certain that is.
 *
 * An entry never changes. A correction is a further entry of the same call with the next revision. The newest revision
 * counts, so the older ones show what was known before.
 */
import { LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Schema from "effect/Schema"
import * as MoneySums from "./MoneySums.ts"
import { Instant, PriceSource, State } from "./EntryFields.ts"

/** Maximum tokens of one kind that an entry accepts. */
const tokensMax = 1e12

/** Maximum number of corrections of one call. */
const revisionMax = 1000

const Tokens = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: tokensMax }))
const Usd = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: MoneySums.callUsdMax }))

/** Names that a host or an upstream gave. */
const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

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
