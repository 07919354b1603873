/**
 * What one call, or one run, has used, for the ledger: from the trusted side only, never from inside a sandbox.
 *
 * Strict: an unknown key is refused, so that nothing rides along. `runId/attempt/usageUnitId` is its key.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** @category models */
export const UsageFact = Schema.Struct({
  runId: RunId,
  attempt: Count,
  usageUnitId: Schema.optionalKey(Identifier),
  source: Identifier,
  executorType: Identifier,
  billingAccountId: Identifier,
  virtualKeyId: Identifier,
  graphId: Identifier,
  provider: Schema.optionalKey(Identifier),
  model: Schema.optionalKey(Identifier),
  inputTokens: Schema.optionalKey(Count),
  outputTokens: Schema.optionalKey(Count),
  cacheReadTokens: Schema.optionalKey(Count),
  cacheWriteTokens: Schema.optionalKey(Count),
  costUsd: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))),
  usageRaw: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
})

/** @category models */
export type UsageFact = typeof UsageFact.Type

/** @category constructors */
export const decode = Schema.decodeUnknownEffect(UsageFact, { errors: "all", onExcessProperty: "error" })

/** What a ledger counts once. @category converting */
export const key = (fact: UsageFact): string => `${fact.runId}/${fact.attempt}/${fact.usageUnitId ?? ""}`
