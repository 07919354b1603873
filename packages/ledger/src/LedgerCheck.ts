/** Checks of the input, the same in every ledger. For implementations of the port. */
import { describeIssue, issuesOf } from "@cogni/sandbox-core/SchemaIssues"
import { Effect, Equal, Schema, Struct } from "effect"
import { LedgerEntry } from "./LedgerEntry.ts"
import { normalized } from "./EntryKey.ts"
import { Instant } from "./EntryFields.ts"
import { LedgerRefused } from "./LedgerError.ts"
import { Filter, PageRequest, SumsRequest } from "./LedgerQuery.ts"
import { LedgerRun, type SettledRun } from "./LedgerRun.ts"

/** Maximum number of entries of one `append` or `settle`. */
export const appendedMax = 100_000

const checking = <A>(schema: Schema.Schema<A>) => {
  const decode = Schema.decodeUnknownEffect(Schema.toType(schema as Schema.Codec<A>), {
    errors: "all",
    onExcessProperty: "error"
  })
  return (input: A): Effect.Effect<A, LedgerRefused> =>
    Effect.mapError(
      decode(input),
      (error) => new LedgerRefused({ problems: issuesOf(error).slice(0, problemsMax).map(describeIssue) })
    )
}

/** Problems that an error names. */
const problemsMax = 10

const Entries = Schema.Array(LedgerEntry).check(Schema.isMaxLength(appendedMax))

/** Checks an input before it changes anything. */
export const check = {
  run: checking(LedgerRun),
  filter: checking(Filter),
  page: checking(PageRequest),
  sums: checking(SumsRequest),
  instant: checking(Instant),
  keyHash: checking(LedgerEntry.fields.runKeyHash.schema),
  /** Also rounds the amounts to pico-dollars. */
  entries: (given: ReadonlyArray<LedgerEntry>): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerRefused> =>
    Effect.map(checkEntries(given), (valid) => valid.map(normalized))
}

const checkEntries = checking(Entries)

/** Refuses a cursor that no page returned. */
export const notACursor = new LedgerRefused({ problems: ["after: Expected `next` of a page before"] })

/** Returns whether a run in the ledger is the one that is opened. For implementations of the port. */
export const isSameRun = (found: SettledRun, run: LedgerRun): boolean =>
  Equal.equals(Struct.omit(found, ["closedAt", "runKeyHash"]), run)
