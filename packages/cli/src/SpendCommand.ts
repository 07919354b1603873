/**
 * `spend`, `spend explain`: what runs cost, from the ledger.
 *
 * They first settle the runs of dead processes of this host. They work without an engine.
 */
import * as AccountLimits from "@cogni/sandbox-ledger/AccountLimits"
import * as AccountReservations from "@cogni/sandbox-ledger/AccountReservations"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import type { LedgerRefused, LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import type { Filter, SpendSum } from "@cogni/sandbox-ledger/LedgerQuery"
import * as RunCost from "@cogni/sandbox-ledger/RunCost"
import { Clock, Effect, Stream } from "effect"
import * as AccountReport from "./AccountReport.ts"
import { refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import type * as SpendFlags from "./SpendFlags.ts"
import * as Output from "./Output.ts"
import { find, store } from "./RecordCommand.ts"
import * as RunLedger from "./RunLedger.ts"
import { Settings } from "./Settings.ts"
import * as SpendReport from "./SpendReport.ts"

type SpendInput = Flags.Typed<typeof SpendFlags.sums>

/** Sums the costs of runs by account, run, model, agent, or another property. */
export const spend = Effect.fnUntraced(function* (input: SpendInput) {
  yield* RunLedger.upToDate
  const ledger = yield* Ledger.Ledger
  const filter: Filter = Flags.given({
    billingAccountId: input.account,
    userId: input.user,
    model: input.model,
    agentId: input.agent,
    from: input.from,
    to: input.to
  })
  const { sums, truncated } = yield* answered(ledger.sums({ by: input.by, filter, limit: input.limit }))
  const {
    sums: [total]
  } = yield* answered(ledger.sums({ by: "total", filter }))
  const limited = input.by === "account" ? yield* limitedAccounts(input, sums) : []
  if (truncated) yield* Output.note(`only the ${input.limit} most expensive are shown; see --limit`)
  switch (input.output) {
    case "json":
      return yield* Output.json({
        by: input.by,
        currency: "USD",
        truncated,
        sums: sums.map(SpendReport.sumJson),
        total: total === undefined ? null : SpendReport.sumJson(total),
        ...(limited.length === 0 ? {} : { limits: limited.map(AccountReport.json) })
      })
    case "csv":
      return yield* Output.Output.use((output) => output.stdout(SpendReport.sumsCsv(input.by, sums)))
    case "text":
      if (sums.length > 0) yield* Output.lines(SpendReport.table(input.by, sums, total))
      else yield* Output.note("no call to a model is in the ledger for these filters")
      if (limited.length > 0) yield* Output.lines(["", ...AccountReport.table(limited)])
  }
}, Effect.provide(store))

/** Number of accounts whose limits are shown. Each is computed from all its calls of this month. */
const limitedMax = 100

/** Computes what is left of the limits of accounts: of those whose costs are shown, and of those in the file of limits. */
const limitedAccounts = Effect.fnUntraced(function* (
  { account }: Pick<SpendInput, "account">,
  sums: ReadonlyArray<SpendSum>
) {
  const limits = yield* Effect.fromResult((yield* Settings).accountLimits)
  if (limits === undefined) return []
  const reservations = yield* AccountReservations.AccountReservations
  const now = new Date(yield* Clock.currentTimeMillis).toISOString()
  const names = new Set([...sums.flatMap(({ group }) => group ?? []), ...Object.keys(limits.accounts ?? {})])
  const shown = [...names].filter((name) => account === undefined || name === account)
  if (shown.length > limitedMax)
    yield* Output.note(`the limits of ${limitedMax} accounts are shown; name one: --account`)
  return yield* Effect.forEach(shown.slice(0, limitedMax), (name) =>
    Effect.map(answered(reservations.standing(name, now)), (standing) => ({
      account: name,
      limit: AccountLimits.limitOf(limits, name),
      standing
    }))
  )
})

/** Explains the cost of a run, call by call. */
export const explain = Effect.fnUntraced(function* (
  input: Flags.Typed<typeof SpendFlags.explain> & { readonly run: string }
) {
  yield* RunLedger.upToDate
  const ledger = yield* Ledger.Ledger
  // The ledger keeps a run whose record was deleted.
  const exact = yield* answered(ledger.attempts(input.run))
  const runId = exact[0]?.runId ?? (yield* find(input.run)).runId
  const runs = exact.length > 0 ? exact : yield* answered(ledger.attempts(runId))
  const entries = [
    ...(yield* answered(
      Stream.runCollect(Ledger.entries({ runId, revisions: input.revisions ? "all" : "newest" }))
    ))
  ]
  const cost = yield* answered(RunCost.find(runId))
  if (runs.length === 0) {
    return yield* refusal(
      "notFound",
      `${runId} is not in the ledger`,
      "Only runs with a model are, since the version that introduced the ledger"
    )
  }
  switch (input.output) {
    case "json":
      return yield* Output.json({
        runId,
        currency: "USD",
        attempts: runs,
        calls: entries,
        cost
      })
    case "csv":
      return yield* Output.Output.use((output) => output.stdout(SpendReport.entriesCsv(entries)))
    case "text":
      yield* Output.lines(SpendReport.explain(runs, entries, cost))
  }
}, Effect.provide(store))

const answered = <A, R>(asked: Effect.Effect<A, LedgerRefused | LedgerUnavailable, R>) =>
  Effect.mapError(asked, (error) =>
    error._tag === "LedgerRefused"
      ? refusal("usage", error.problems.join("; "), "See: cogni-sandbox spend --help")
      : refusal("unavailable", `the ledger ${error.detail}`, error.remedy)
  )
