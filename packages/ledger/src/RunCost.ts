/** The cost of a run with its certainty, for the reports of a run. */
import { Effect, Schema } from "effect"
import { Ledger } from "./Ledger.ts"
import type { SpendSum } from "./LedgerQuery.ts"
import type { SettledRun } from "./LedgerRun.ts"
import type { LedgerRefused, LedgerUnavailable } from "./LedgerError.ts"
import * as Money from "./Money.ts"

const Count = Schema.Int

/** Cost of all attempts of a run. */
export const RunCost = Schema.Struct({
  currency: Schema.Literal("USD"),
  /** Sum of the known costs. Absent if no cost is known. */
  costUsd: Schema.optionalKey(Schema.Finite),
  /** The part of `costUsd` that was charged as reserved. */
  estimatedCostUsd: Schema.optionalKey(Schema.Finite),
  calls: Count,
  /** Calls whose cost is unknown, and not in `costUsd`. */
  callsWithoutCost: Count,
  /** Number of calls in each state. */
  states: Schema.Struct({
    pending: Count,
    matched: Count,
    drifted: Count,
    missing: Count,
    estimated: Count
  }),
  /** False while calls may be missing, because the run has not ended or its audit was not read yet. */
  isSettled: Schema.Boolean
})

export type RunCost = typeof RunCost.Type

const none = { pending: 0, matched: 0, drifted: 0, missing: 0, estimated: 0 }

const costOf = (attempts: ReadonlyArray<SettledRun>, sum: SpendSum | undefined): RunCost => ({
  currency: "USD",
  ...(sum?.cost === undefined ? {} : { costUsd: Money.toUsd(sum.cost) }),
  ...(sum?.estimatedCost === undefined ? {} : { estimatedCostUsd: Money.toUsd(sum.estimatedCost) }),
  calls: sum?.calls ?? 0,
  callsWithoutCost: sum?.callsWithoutCost ?? 0,
  states: sum?.states ?? none,
  isSettled: attempts.every(({ closedAt }) => closedAt !== undefined)
})

/**
 * Returns the costs of at most `LedgerQuery.unitsMax` runs, with two questions to the ledger. A run that is not in the
 * ledger, such as one without a model, has none.
 */
export const findAll = Effect.fn("RunCost.findAll")(function* (
  runIds: ReadonlyArray<string>
): Effect.fn.Return<ReadonlyMap<string, RunCost>, LedgerRefused | LedgerUnavailable, Ledger> {
  const ledger = yield* Ledger
  const attempts = Map.groupBy(yield* ledger.attempts(...runIds), ({ runId }) => runId)
  if (attempts.size === 0) return new Map()
  const { sums } = yield* ledger.sums({ by: "run", filter: { runIds: [...attempts.keys()] } })
  return new Map(
    [...attempts].map(([runId, all]) => [
      runId,
      costOf(
        all,
        sums.find(({ group }) => group === runId)
      )
    ])
  )
})

/** Returns the cost of a run, or `undefined` if the run is not in the ledger, such as a run without a model. */
export const find = (
  runId: string
): Effect.Effect<RunCost | undefined, LedgerRefused | LedgerUnavailable, Ledger> =>
  Effect.map(findAll([runId]), (costs) => costs.get(runId))
