/**
 * One HTTP exchange with another service, with limits on its time and the size of its answer.
 *
 * Redirects are not followed, so only the requested address receives the credential. The service gets no trace ID.
 */
import { Duration, Effect, Schema, Stream } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import type { Headers } from "effect/http/Headers"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientError from "effect/http/HttpClientError"
import * as HttpClientRequest from "effect/http/HttpClientRequest"

export interface HttpAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** There is no complete answer. */
export class HttpUnanswered extends Schema.TaggedError<HttpUnanswered>()("HttpUnanswered", {
  problem: Schema.Literals(["failed", "slow", "too_long", "unreachable", "untrusted"]),
  /** Message of the cause. May repeat parts of the request: redact it. */
  detail: Schema.String
}) {}

export interface HttpLimits {
  /** For the request and its whole answer. */
  readonly secondsMax: number
  readonly answerBytesMax: number
}

/** Sends a request, and reads the whole answer, whatever its status. */
export const exchange = (
  request: HttpClientRequest.HttpClientRequest,
  { answerBytesMax, secondsMax }: HttpLimits
): Effect.Effect<HttpAnswer, HttpUnanswered> =>
  Effect.gen(function* () {
    const { headers, status, stream } = yield* Effect.mapError((yield* client).execute(request), unanswered)
    const text = yield* stream.pipe(
      // An answer without a body, such as 204, is an empty text.
      Stream.catchIf(isEmpty, () => Stream.empty),
      Stream.mapError(unanswered),
      Stream.limitBytes(answerBytesMax, () =>
        Stream.fail(
          new HttpUnanswered({
            problem: "too_long",
            detail: `its answer is longer than ${answerBytesMax} bytes`
          })
        )
      ),
      Stream.decodeText,
      Stream.mkString
    )
    return { status, headers, text }
  }).pipe(
    Effect.scoped,
    Effect.provide(FetchHttpClient.layer),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
    Effect.provideService(HttpClient.TracerDisabledWhen, () => true),
    Effect.timeoutOrElse({
      duration: Duration.seconds(secondsMax),
      orElse: () =>
        new HttpUnanswered({ problem: "slow", detail: `it did not answer within ${secondsMax} s` })
    })
  )

const isEmpty = (error: unknown): boolean =>
  HttpClientError.isHttpClientError(error) && error.reason._tag === "EmptyBodyError"

const client = Effect.map(HttpClient.HttpClient, (plain) =>
  // GitHub rejects requests without a user agent.
  HttpClient.mapRequest(
    HttpClient.withScope(plain),
    HttpClientRequest.setHeader("user-agent", "cogni-sandbox")
  )
)

/** Error codes of OpenSSL and Node for a failed or untrusted TLS handshake. */
const tlsCodes = /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL|EPROTO/u

const networkCodes = /^(?:E[A-Z]+|EAI_[A-Z]+|UND_ERR_[A-Z_]+)$/u

const unanswered = (error: Error): HttpUnanswered => {
  const causes = causesOf(error)
  const detail = causes.map(({ message }) => message).findLast((message) => message !== "") ?? error.name
  const codes = causes.map((cause) => ("code" in cause ? String(cause.code) : ""))
  const problem = codes.some((code) => tlsCodes.test(code))
    ? "untrusted"
    : codes.some((code) => networkCodes.test(code))
      ? "unreachable"
      : "failed"
  return new HttpUnanswered({ problem, detail })
}

/** An error and its causes, outermost first. */
const causesOf = (error: Error): ReadonlyArray<Error> =>
  error.cause instanceof Error ? [error, ...causesOf(error.cause)] : [error]
