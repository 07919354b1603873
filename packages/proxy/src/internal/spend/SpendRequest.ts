/**
 * Reads the spend rows of an upstream over HTTP: one request, its retries, and the limits of its answer.
 *
 * The key is read for each request. Errors contain nothing that the upstream wrote, because it may repeat the key.
 */
import { SpendRowsUnavailable } from "@cogni/sandbox-ledger/SpendRows"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as KeyInjection from "../../KeyInjection.ts"
import * as ManagementRequest from "../ManagementRequest.ts"
import type { KeyUnavailable } from "../../UpstreamKey.ts"

/** Key that may read all rows: fixed, or an effect that returns the current one. */
export type RowsKey = KeyInjection.UpstreamKey | Effect.Effect<KeyInjection.UpstreamKey, KeyUnavailable>

export interface SpendRequestOptions {
  /** Name of the upstream, for people. */
  readonly name: string
  /** URL without a path. */
  readonly origin: string
  readonly connections: ManagementRequest.Connections
  readonly key: RowsKey
  /** Instruction for an operator whose key is refused. */
  readonly keyRemedy: string
  readonly requestSecondsMax: number
  /** Statuses that mean that there is nothing, such as 404 of a lookup by ID. */
  readonly absent?: number | undefined
}

/** Time limit of one request and its answer, in seconds. A page of LiteLLM takes milliseconds, of a busy one seconds. */
export const requestSecondsDefault = 30

/** Maximum size of an answer. A row of LiteLLM has 2 to 4 KB, and a page has 500. */
const answerBytesMax = 32 * 1024 * 1024

/** Retries of a request that may succeed later. */
const retriesMax = 2

/** Sends a request and decodes its answer. Returns nothing for the status that means that there is nothing. */
export const get = <S extends Schema.ConstraintDecoder<unknown>>(
  options: SpendRequestOptions,
  target: string,
  answer: S
): Effect.Effect<S["Type"] | undefined, SpendRowsUnavailable> =>
  Effect.flatMap(
    Effect.retry(send(options, target), {
      times: retriesMax,
      while: ({ isRetryable }) => isRetryable,
      schedule: Schedule.exponential("250 millis", 4)
    }),
    (text) =>
      text === undefined
        ? Effect.succeed(undefined)
        : Effect.mapError(Schema.decodeUnknownEffect(Schema.fromJsonString(answer))(text), () =>
            failed(
              options,
              "unreadable",
              "its answer is not what its API says",
              "Check its address and version"
            )
          )
  )

const failed = (
  { name }: SpendRequestOptions,
  problem: SpendRowsUnavailable["problem"],
  detail: string,
  remedy: string
) => new SpendRowsUnavailable({ problem, detail: `${name}: ${detail}`, remedy })

const again = "Check its log and its database. The next pass asks again"

const send = (
  options: SpendRequestOptions,
  target: string
): Effect.Effect<string | undefined, SpendRowsUnavailable> =>
  Effect.gen(function* () {
    const key = yield* currentKey(options)
    const { status, text } = yield* Effect.tryPromise({
      try: (signal) =>
        ManagementRequest.send({
          connections: options.connections,
          url: `${options.origin}${target}`,
          key,
          signal,
          answerBytesMax
        }),
      catch: () => unreachable(options)
    })
    if (status === options.absent) return undefined
    if (status < 200 || status >= 300) return yield* refusedWith(options, status)
    if (text !== undefined) return text
    return yield* failed(
      options,
      "too_large",
      `its answer is longer than ${answerBytesMax} bytes`,
      "Check its version"
    )
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(options.requestSecondsMax),
      orElse: () =>
        Effect.fail(failed(options, "timed_out", `no answer within ${options.requestSecondsMax} s`, again))
    })
  )

const currentKey = (
  options: SpendRequestOptions
): Effect.Effect<KeyInjection.UpstreamKey, SpendRowsUnavailable> =>
  Redacted.isRedacted(options.key)
    ? Effect.succeed(options.key)
    : Effect.mapError(options.key, ({ detail, isRetryable, remedy }) =>
        failed(
          options,
          isRetryable ? "unavailable" : "key_refused",
          `its key is not available: ${detail}`,
          remedy
        )
      )

const unreachable = (options: SpendRequestOptions) =>
  failed(
    options,
    "unreachable",
    "it does not answer",
    "Start it, or correct its URL. The next pass asks again"
  )

const refusedWith = (options: SpendRequestOptions, status: number): SpendRowsUnavailable => {
  const said = `it answers ${status}`
  if (status === 401 || status === 403) return failed(options, "key_refused", said, options.keyRemedy)
  if (status === 429 || status >= 500) return failed(options, "unavailable", said, again)
  return failed(
    options,
    "unsupported",
    said,
    "Update it, or correct its URL: it does not offer its spend rows there"
  )
}
