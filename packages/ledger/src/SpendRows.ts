/**
 * Port to an upstream's own record of calls: its spend rows.
 *
 * A row says what the upstream bills for a call. Every query has a filter: calls, a run's key, or an account. There is
 * no query for all rows, because it would return the rows of other tenants, and a table of any size.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import type { LedgerEntry } from "./LedgerEntry.ts"
import * as Stream from "effect/Stream"
import { queryCallsMax, Window, CallKey, Text, Filter, keyHashPattern } from "./SpendFields.ts"

/** Maximum tokens of a row. A larger figure is wrong, and its row is unreadable. */
const rowTokensMax = 1_000_000_000

/** Maximum cost of a row, in US dollars. A larger figure is wrong, and its row is unreadable. */
const rowCostUsdMax = 1_000_000

const Tokens = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: rowTokensMax }))

/** Names that the host sent with the call, as the upstream recorded them. */
const SpendMetadata = Schema.Struct({
  runId: Schema.optionalKey(Text),
  attempt: Schema.optionalKey(Schema.Int)
})

type SpendMetadata = typeof SpendMetadata.Type

/** One row of an upstream. An absent figure is unknown, never 0. */
export const SpendRow = Schema.Struct({
  /** The upstream's ID of the row. A call with two rows has two of these. */
  rowId: Text,
  /** Call ID of the host, if the row has one. */
  callId: Schema.optionalKey(Text),
  /** Hash of the key that paid. Absent if the upstream does not tell. */
  runKeyHash: Schema.optionalKey(Text),
  /** Account that is billed. Empty if the row names none; absent if the upstream does not record accounts. */
  endUser: Schema.optionalKey(Text),
  metadata: Schema.optionalKey(SpendMetadata),
  model: Schema.optionalKey(Text),
  /** All input tokens, including those read from or written to a cache. */
  inputTokens: Schema.optionalKey(Tokens),
  outputTokens: Schema.optionalKey(Tokens),
  cacheReadTokens: Schema.optionalKey(Tokens),
  cacheWriteTokens: Schema.optionalKey(Tokens),
  costUsd: Schema.optionalKey(Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: rowCostUsdMax }))),
  /** The cost of 0 is what the upstream bills. Otherwise, 0 for tokens may mean that it has no price for the model. */
  isFree: Schema.optionalKey(Schema.Literal(true)),
  /** Start of the call by the upstream's clock: ISO 8601, in UTC. */
  startedAt: Schema.optionalKey(Schema.String),
  /** Whether the upstream wrote a time zone. If not, the time was read as UTC. */
  zone: Schema.optionalKey(Schema.Literals(["stated", "assumed_utc"])),
  status: Schema.Literals(["success", "failure", "unknown"]),
  /** The row exists, and has values that no row can have. Its figures are absent. */
  unreadable: Schema.optionalKey(Schema.Literal(true))
})

export type SpendRow = typeof SpendRow.Type

/** A query for rows. Each variant has a filter that cannot be empty. */
export const SpendQuery = Schema.Union([
  Schema.TaggedStruct("Calls", {
    calls: Schema.NonEmptyArray(CallKey).check(Schema.isMaxLength(queryCallsMax))
  }),
  Schema.TaggedStruct("RunKey", {
    runKeyHash: Schema.String.check(Schema.isPattern(keyHashPattern)),
    window: Window
  }),
  Schema.TaggedStruct("Account", { billingAccountId: Filter, window: Window })
])

export type SpendQuery = typeof SpendQuery.Type

/** Why rows could not be read. */
const SpendRowsProblem = Schema.Literals([
  "unreachable",
  "timed_out",
  "unavailable",
  "key_refused",
  "unsupported",
  "unreadable",
  "too_large",
  "filter_ignored",
  "invalid_query"
])

type SpendRowsProblem = typeof SpendRowsProblem.Type

const retryable: ReadonlySet<SpendRowsProblem> = new Set(["unreachable", "timed_out", "unavailable"])

/** Rows could not be read. Nothing is known about the calls, so their entries stay as they are. */
export class SpendRowsUnavailable extends Schema.TaggedError<SpendRowsUnavailable>()("SpendRowsUnavailable", {
  problem: SpendRowsProblem,
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the upstream's spend rows cannot be read: ${this.detail}. ${this.remedy}`
  }
  get isRetryable(): boolean {
    return retryable.has(this.problem)
  }
}

/** Kinds of queries that an upstream can answer. An upstream with none keeps no rows. */
export interface SpendAbilities {
  /** Finds the rows of a call, usually with one request for each. */
  readonly calls: boolean
  /**
   * Finds a call only by the upstream's own ID, which its answer told (default: no). A call without that ID has no row
   * that can be asked for, so it is never missing.
   */
  readonly upstreamCallIdsOnly?: boolean | undefined
  readonly runKeys: boolean
  readonly accounts: boolean
}

export class SpendRows extends Context.Service<
  SpendRows,
  {
    /** Name of the upstream's profile, as in the entries of its calls. */
    readonly upstream: string
    readonly abilities: SpendAbilities
    /** Returns rows in pages, in any order. A row may come twice if rows are written meanwhile. */
    readonly rowsOf: (query: SpendQuery) => Stream.Stream<SpendRow, SpendRowsUnavailable>
  }
>()("@cogni/sandbox-ledger/SpendRows") {}

/** Checks a query at run time, for callers without types. A query without a filter is refused. */
export const checked = (query: SpendQuery): Effect.Effect<SpendQuery, SpendRowsUnavailable> =>
  Effect.mapError(
    decodeQuery(query),
    () =>
      new SpendRowsUnavailable({
        problem: "invalid_query",
        detail:
          "a query names neither calls nor a run's key nor an account, or its time is not ISO 8601 in UTC",
        remedy: "Name 1 to 500 calls, the SHA-256 of a key, or an account"
      })
  )

const decodeQuery = Schema.decodeUnknownEffect(SpendQuery)

/** Computes the cost of a call from its tokens, for an upstream that keeps no rows. */
export type PriceOf = (
  entry: LedgerEntry
) => Effect.Effect<{ readonly costUsd: number; readonly source: string } | undefined>

/** Returns whether a row is one that a query asked for. An upstream that ignores a filter returns others. */
export const answers = (query: SpendQuery, row: SpendRow): boolean => {
  switch (query._tag) {
    case "Calls":
      return query.calls.some(
        ({ callId, upstreamCallId }) =>
          row.callId === callId || row.rowId === callId || row.rowId === upstreamCallId
      )
    case "RunKey":
      return row.runKeyHash === query.runKeyHash
    case "Account":
      return row.endUser === query.billingAccountId
  }
}

/** Rows in memory, for tests. It can fail in the same ways as an upstream. */
export interface MemorySpendRows {
  readonly service: SpendRows["Service"]
  /** Adds rows, as an upstream does when it writes its batch. */
  readonly write: (rows: ReadonlyArray<SpendRow>) => Effect.Effect<void>
  /** Deletes all rows, as an upstream does with old ones. */
  readonly clear: Effect.Effect<void>
  /** Lets all queries fail, until it is called with `undefined`. */
  readonly fail: (problem: SpendRowsUnavailable | undefined) => Effect.Effect<void>
  /** All queries so far. */
  readonly asked: Effect.Effect<ReadonlyArray<SpendQuery>>
}

export const makeMemory = (
  upstream: string,
  abilities: SpendAbilities = { accounts: true, calls: true, runKeys: true }
): Effect.Effect<MemorySpendRows> =>
  Effect.gen(function* () {
    const rows = yield* Ref.make<ReadonlyArray<SpendRow>>([])
    const failure = yield* Ref.make<SpendRowsUnavailable | undefined>(undefined)
    const asked = yield* Ref.make<ReadonlyArray<SpendQuery>>([])
    const rowsOf = Effect.fnUntraced(function* (given: SpendQuery) {
      const query = yield* checked(given)
      yield* Ref.update(asked, (before) => [...before, query])
      const problem = yield* Ref.get(failure)
      if (problem !== undefined) return yield* problem
      return (yield* Ref.get(rows)).filter((row) => answers(query, row) && isWithin(query, row))
    })
    return {
      service: SpendRows.of({
        upstream,
        abilities,
        rowsOf: (query) => Stream.fromIterableEffect(rowsOf(query))
      }),
      write: (written) => Ref.update(rows, (before) => [...before, ...written]),
      clear: Ref.set(rows, []),
      fail: (problem) => Ref.set(failure, problem),
      asked: Ref.get(asked)
    }
  })

const isWithin = (query: SpendQuery, { startedAt }: SpendRow): boolean =>
  query._tag === "Calls" ||
  (startedAt !== undefined &&
    Date.parse(startedAt) >= Date.parse(query.window.from) &&
    Date.parse(startedAt) <= Date.parse(query.window.to))

/** An upstream that keeps no rows, or none that a host can read. */
export const layerNone = (upstream: string): Layer.Layer<SpendRows> =>
  Layer.succeed(SpendRows, {
    upstream,
    abilities: { accounts: false, calls: false, runKeys: false },
    rowsOf: () =>
      Stream.fail(
        new SpendRowsUnavailable({
          problem: "unsupported",
          detail: `${upstream} keeps no rows that a host can read`,
          remedy: "Use LiteLLM or OpenRouter as the upstream, or compare the bill of the provider by hand"
        })
      )
  })
