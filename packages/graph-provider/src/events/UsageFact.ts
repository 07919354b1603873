/**
 * Usage of one call or one run, for the ledger: from the trusted side only, never from inside a sandbox.
 *
 * Strict: unknown keys are rejected, so that a fact carries no other data. Its key is `runId/attempt/usageUnitId`.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { hasReachedUpstream, type LlmCall, type LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { Schema } from "effect"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

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
  /** The upstream did not report all tokens. The missing counts are those reserved for the call. */
  estimated: Schema.optionalKey(Schema.Literal(true)),
  usageRaw: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
})

export type UsageFact = typeof UsageFact.Type

export const decode = Schema.decodeUnknownEffect(UsageFact, { errors: "all", onExcessProperty: "error" })

/** Returns the key of a fact. A ledger counts each key once. */
export const key = (fact: UsageFact): string => `${fact.runId}/${fact.attempt}/${fact.usageUnitId ?? ""}`

/** The run and the account that the calls belong to. */
export interface UsageOwner {
  readonly runId: RunId
  readonly attempt: number
  readonly graphId: string
  readonly billingAccountId: string
  readonly virtualKeyId: string
  /** Type of the executor that ran it. Default: `sandbox`. */
  readonly executorType?: string
}

/** Type of the executor that runs sandboxes. */
export const executorType = "sandbox"

/** Unit of a run's calls that are counted together, because there are too many to list. */
export const restUnitId = "rest"

/**
 * Returns one fact for each call that reached the model, and at least one for a run. A run without calls used 0 tokens;
 * a fact without tokens means that the usage is unknown.
 */
export const fromTraffic = (
  owner: UsageOwner,
  traffic: LlmTraffic | undefined
): readonly [UsageFact, ...ReadonlyArray<UsageFact>] => {
  const type = owner.executorType ?? executorType
  const common = { ...owner, source: traffic?.proxy ?? type, executorType: type }
  if (traffic === undefined) return [common]
  const unitOf = uniqueUnits()
  const calls = traffic.calls.filter(hasReachedUpstream).map((call, index): UsageFact => {
    // Facts have no field for them: a part of `cacheWriteTokens` with its own price, and the source of the cost.
    const { cacheWrite1hTokens, priceSource, ...usage } = call.usage ?? {}
    return {
      ...common,
      usageUnitId: unitOf(call, index),
      ...(call.model !== undefined && isIdentifier(call.model) ? { model: call.model } : {}),
      ...usage,
      usageRaw: {
        path: call.path,
        status: call.status,
        completed: call.completed,
        ...(call.outcome === undefined ? {} : { outcome: call.outcome }),
        ...(cacheWrite1hTokens === undefined ? {} : { cacheWrite1hTokens }),
        ...(priceSource === undefined ? {} : { priceSource })
      }
    }
  })
  const rest = restOf(traffic)
  const [first, ...more] =
    rest === undefined ? calls : [...calls, { ...common, usageUnitId: restUnitId, ...rest }]
  if (first !== undefined) return [first, ...more]
  return traffic.unreadableRows > 0 ? [common] : [{ ...common, inputTokens: 0, outputTokens: 0 }]
}

/** Returns the fact of a run whose usage is unknown. */
export const ofUnknown = (owner: UsageOwner): UsageFact => fromTraffic(owner, undefined)[0]

/** Returns the fact of a run that was refused before it started: it used nothing. */
export const ofNothing = (owner: UsageOwner): UsageFact => ({
  ...ofUnknown(owner),
  inputTokens: 0,
  outputTokens: 0
})

/**
 * Returns a fact of a third-party provider as a fact of this run. The run, the account and the executor are those that
 * the host knows; a provider cannot name others.
 */
export const ofProvider = (owner: Required<UsageOwner>, fact: UsageFact): UsageFact => ({ ...fact, ...owner })

/** Makes units unique, also if an upstream gives two calls one ID, or uses one of our IDs. */
const uniqueUnits = (): ((call: LlmCall, index: number) => string) => {
  const taken = new Set<string>([restUnitId])
  return ({ callId, requestId }, index) => {
    const free = (unit: string | undefined): unit is string =>
      unit !== undefined && isIdentifier(unit) && !taken.has(unit)
    let unit = [callId, requestId].find(free)
    for (let number = index; unit === undefined; number++) if (free(`call-${number}`)) unit = `call-${number}`
    taken.add(unit)
    return unit
  }
}

const isIdentifier = Schema.is(Identifier)

const counts = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"] as const

/** Returns the usage of all calls, minus the usage of the listed ones. */
const restOf = ({ calls, callsTotal, usage }: LlmTraffic): Partial<UsageFact> | undefined => {
  const unlisted = callsTotal - calls.length
  if (unlisted <= 0) return undefined
  const usageRaw = { calls: unlisted }
  if (usage === undefined) return { usageRaw }
  const listed = (name: (typeof counts)[number]) =>
    calls.reduce((sum, call) => sum + (call.usage?.[name] ?? 0), 0)
  const costUsd = calls.reduce((sum, call) => sum + (call.usage?.costUsd ?? 0), 0)
  return {
    ...Object.fromEntries(counts.map((name) => [name, Math.max(0, usage[name] - listed(name))])),
    ...(usage.costUsd === undefined ? {} : { costUsd: Math.max(0, usage.costUsd - costUsd) }),
    ...(usage.callsWithoutUsage > calls.filter((call) => call.usage?.estimated === true).length
      ? { estimated: true }
      : {}),
    usageRaw
  }
}
