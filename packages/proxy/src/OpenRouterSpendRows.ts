/**
 * Spend rows of OpenRouter: its record of one generation.
 *
 * OpenRouter knows neither the host's call IDs nor accounts, so a call is asked for by the ID in OpenRouter's answer. A
 * call whose answer never came has no such ID and no row. The key is the one that made the call.
 */
import {
  checked,
  type SpendQuery,
  SpendRow,
  SpendRows,
  SpendRowsUnavailable
} from "@cogni/sandbox-ledger/SpendRows"
import { instantOf } from "@cogni/sandbox-ledger/Reconciliation"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import * as SpendRequest from "./internal/spend/SpendRequest.ts"
import * as Upstream from "./Upstream.ts"

interface OpenRouterSpendRowsOptions extends ManagementRequest.Connection {
  /** URL of OpenRouter's API (default `https://openrouter.ai/api/v1`). */
  readonly url?: string | undefined
  readonly key: SpendRequest.RowsKey
  /** Maximum time for one request and its answer, in seconds (default 30). */
  readonly requestSecondsMax?: number | undefined
}

const concurrency = 8

const Figure = Schema.optionalKey(Schema.NullOr(Schema.Unknown))

const Generation = Schema.Struct({
  data: Schema.Struct({
    id: Schema.String,
    total_cost: Figure,
    is_byok: Figure,
    native_tokens_prompt: Figure,
    native_tokens_completion: Figure,
    native_tokens_cached: Figure,
    created_at: Figure,
    model: Figure
  })
})

/** Fails if the URL is invalid. */
export const make = (
  options: OpenRouterSpendRowsOptions
): Result.Result<SpendRows["Service"], { readonly message: string }> =>
  Result.gen(function* () {
    const { address, profile } = yield* Upstream.resolve(
      { type: "host", url: options.url ?? "https://openrouter.ai/api/v1" },
      { profile: "openrouter" }
    )
    const request: SpendRequest.SpendRequestOptions = {
      name: "OpenRouter",
      origin: `${address.display}${profile.pathPrefix}`,
      connections: yield* ManagementRequest.connections(address.display, options),
      key: options.key,
      keyRemedy: "Give a valid key of the OpenRouter account that made the calls",
      requestSecondsMax: options.requestSecondsMax ?? SpendRequest.requestSecondsDefault,
      absent: 404
    }
    return SpendRows.of({
      upstream: "openrouter",
      abilities: { accounts: false, calls: true, upstreamCallIdsOnly: true, runKeys: false },
      rowsOf: (given) => Stream.unwrap(Effect.map(checked(given), (query) => rowsOf(request, query)))
    })
  })

export const layer = (
  options: OpenRouterSpendRowsOptions
): Layer.Layer<SpendRows, { readonly message: string }> =>
  Layer.effect(
    SpendRows,
    Effect.suspend(() => Effect.fromResult(make(options)))
  )

const rowsOf = (
  request: SpendRequest.SpendRequestOptions,
  query: SpendQuery
): Stream.Stream<SpendRow, SpendRowsUnavailable> =>
  query._tag === "Calls"
    ? Stream.fromIterable(query.calls).pipe(
        Stream.mapEffect(
          ({ callId, upstreamCallId }) =>
            upstreamCallId === undefined
              ? Effect.fail(unnamed)
              : Effect.map(
                  SpendRequest.get(
                    request,
                    `/generation?id=${encodeURIComponent(upstreamCallId)}`,
                    Generation
                  ),
                  (found) => (found === undefined ? [] : [rowOf(callId, upstreamCallId, found.data)])
                ),
          { concurrency }
        ),
        Stream.flattenIterable
      )
    : Stream.fail(
        new SpendRowsUnavailable({
          problem: "unsupported",
          detail: "OpenRouter lists no rows of a key or an account",
          remedy: "Ask for calls by their IDs"
        })
      )

/** A call without OpenRouter's ID may have a row, so its row is unknown, not missing. */
const unnamed = new SpendRowsUnavailable({
  problem: "unsupported",
  detail: "OpenRouter finds a call only by the ID in its answer, which is not known for every call",
  remedy: "Compare these calls by hand"
})

const decodeRow = Schema.decodeUnknownResult(SpendRow)

const rowOf = (callId: string, asked: string, data: (typeof Generation)["Type"]["data"]): SpendRow => {
  const instant = typeof data.created_at === "string" ? instantOf(data.created_at) : undefined
  const row = decodeRow({
    rowId: data.id,
    callId,
    ...told("inputTokens", data.native_tokens_prompt),
    ...told("outputTokens", data.native_tokens_completion),
    ...told("cacheReadTokens", data.native_tokens_cached),
    ...told("costUsd", data.total_cost),
    // With a key of a provider, the cost is only OpenRouter's fee.
    ...(data.total_cost === 0 && data.is_byok !== true ? { isFree: true } : {}),
    ...told("model", data.model),
    ...instant,
    status: "success"
  })
  return data.id === asked && Result.isSuccess(row)
    ? row.success
    : { rowId: asked, callId, status: "unknown", unreadable: true }
}

const told = (name: string, value: unknown): Readonly<Record<string, unknown>> =>
  value === undefined || value === null ? {} : { [name]: value }
