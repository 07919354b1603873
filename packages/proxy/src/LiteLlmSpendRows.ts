/**
 * Spend rows of LiteLLM: by call ID, by the key of a run, or by account.
 *
 * Keys and accounts are asked for page by page, in a window of time, because the other endpoint is not paged. Every row
 * is checked against the filter. A LiteLLM that ignores one returns the rows of all tenants, and none of them is used.
 */
import {
  answers,
  checked,
  type SpendQuery,
  type SpendRow,
  SpendRows,
  SpendRowsUnavailable
} from "@cogni/sandbox-ledger/SpendRows"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import * as LiteLlmRow from "./internal/spend/LiteLlmRow.ts"
import * as SpendRequest from "./internal/spend/SpendRequest.ts"
import * as Upstream from "./Upstream.ts"

export interface LiteLlmSpendRowsOptions extends ManagementRequest.Connection {
  /** URL of LiteLLM, with or without `/v1`. */
  readonly url: string
  /** LiteLLM's master key, or the key of an administrator. It is used only for these requests. */
  readonly key: SpendRequest.RowsKey
  /** Maximum time for one request and its answer, in seconds (default 30). */
  readonly requestSecondsMax?: number | undefined
}

/** Rows of one page. */
const pageRows = 500

/** Maximum pages of one query. */
const pagesMax = 400

/** Requests for single calls at the same time. */
const concurrency = 8

const Rows = Schema.Array(Schema.Unknown)

const Page = Schema.Struct({ data: Rows })

/** Fails if the URL is invalid, or is not LiteLLM's. */
export const make = (
  options: LiteLlmSpendRowsOptions
): Result.Result<SpendRows["Service"], { readonly message: string }> =>
  Result.gen(function* () {
    const { address } = yield* Upstream.resolve({ type: "host", url: options.url }, { profile: "litellm" })
    const request: SpendRequest.SpendRequestOptions = {
      name: "LiteLLM",
      origin: address.display,
      connections: yield* ManagementRequest.connections(address.display, options),
      key: options.key,
      keyRemedy:
        "Give a key that may read all spend rows, such as LiteLLM's master key, and check that it has a database",
      requestSecondsMax: options.requestSecondsMax ?? SpendRequest.requestSecondsDefault
    }
    const readsAll = makeReadsAll(request)
    return SpendRows.of({
      upstream: "litellm",
      abilities: { accounts: true, calls: true, runKeys: true },
      rowsOf: (given) =>
        Stream.unwrap(Effect.flatMap(checked(given), (query) => Effect.as(readsAll, rowsOf(request, query))))
    })
  })

/** How long a key that may read all rows is not checked again, in milliseconds. */
const readsAllMillis = 600_000

/**
 * Fails if the key may not read all rows. LiteLLM filters the rows of such a key without a word, so the calls of all
 * others would be missing. Only administrators may list users.
 */
const makeReadsAll = (
  request: SpendRequest.SpendRequestOptions
): Effect.Effect<void, SpendRowsUnavailable> => {
  let untilMillis = 0
  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    if (now < untilMillis) return
    const keyRemedy =
      "This key may see only rows of its own, so other calls would seem to be missing. " +
      "Give LiteLLM's master key, or the key of one of its administrators (proxy_admin or proxy_admin_viewer)"
    yield* SpendRequest.get({ ...request, keyRemedy }, "/user/list?page=1&page_size=1", Schema.Unknown)
    untilMillis = now + readsAllMillis
  })
}

export const layer = (
  options: LiteLlmSpendRowsOptions
): Layer.Layer<SpendRows, { readonly message: string }> =>
  Layer.effect(
    SpendRows,
    Effect.suspend(() => Effect.fromResult(make(options)))
  )

type Found = Stream.Stream<SpendRow, SpendRowsUnavailable>

const rowsOf = (request: SpendRequest.SpendRequestOptions, query: SpendQuery): Found => {
  switch (query._tag) {
    case "Calls":
      return Stream.fromIterable(query.calls).pipe(
        Stream.mapEffect(
          ({ callId }) =>
            Effect.flatMap(
              SpendRequest.get(request, `/spend/logs?request_id=${encodeURIComponent(callId)}`, Rows),
              (rows = []) => accepted({ ...query, calls: [{ callId }] }, rows, 0)
            ),
          { concurrency }
        ),
        Stream.flattenIterable
      )
    case "RunKey":
      return paged(request, query, { api_key: query.runKeyHash }, query.window)
    case "Account":
      return paged(request, query, { end_user: query.billingAccountId }, query.window)
  }
}

const paged = (
  request: SpendRequest.SpendRequestOptions,
  query: SpendQuery,
  filter: Readonly<Record<string, string>>,
  { from, to }: { readonly from: string; readonly to: string }
): Found =>
  Stream.paginate(1, (page) =>
    Effect.gen(function* () {
      const parameters = new URLSearchParams({
        ...filter,
        start_date: secondOf(from, Math.floor),
        end_date: secondOf(to, Math.ceil),
        page: String(page),
        page_size: String(pageRows),
        // Rows that are written meanwhile come at the end.
        sort_by: "startTime",
        sort_order: "asc"
      })
      const { data } = (yield* SpendRequest.get(request, `/spend/logs/v2?${parameters}`, Page)) ?? {
        data: []
      }
      if (data.length > pageRows) return yield* filterIgnored
      const rows = yield* accepted(query, data, page * pageRows)
      // The number of pages that LiteLLM states ends at 10,000 rows.
      if (data.length < pageRows) return [rows, Option.none<number>()] as const
      return page < pagesMax ? ([rows, Option.some(page + 1)] as const) : yield* tooLarge
    })
  )

/** Formats a time as LiteLLM reads it: in UTC, to the second. */
const secondOf = (instant: string, round: (seconds: number) => number): string =>
  new Date(round(Date.parse(instant) / 1000) * 1000).toISOString().slice(0, 19).replace("T", " ")

const accepted = (query: SpendQuery, found: ReadonlyArray<unknown>, offset: number) => {
  const rows = found.map((row, index) => LiteLlmRow.read(row, offset + index))
  return rows.every((row) => answers(query, row)) ? Effect.succeed(rows) : filterIgnored
}

const filterIgnored = Effect.fail(
  new SpendRowsUnavailable({
    problem: "filter_ignored",
    detail: "LiteLLM returned rows that were not asked for",
    remedy: "Update LiteLLM: this version ignores a filter, and returns the rows of all tenants"
  })
)

const tooLarge = Effect.fail(
  new SpendRowsUnavailable({
    problem: "too_large",
    detail: `LiteLLM has more than ${pageRows * pagesMax} rows for one query`,
    remedy: "Give each run a key of its own, which separates its rows from others"
  })
)
