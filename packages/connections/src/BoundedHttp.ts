/**
 * One HTTP exchange with another service, with limits on its time and the size of its answer.
 *
 * Redirects are not followed, so only the requested address receives the credential. The service gets no trace ID.
 */
import { Duration, Effect, Schema, Stream } from "effect"

export interface HttpAnswer {
  readonly status: number
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>
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
  request: Request,
  { answerBytesMax, secondsMax }: HttpLimits
): Effect.Effect<HttpAnswer, HttpUnanswered> =>
  Effect.gen(function* () {
    const { body, headers, status } = yield* Effect.tryPromise({
      try: (signal) => fetch(named(request), { redirect: "manual", signal }),
      catch: unanswered
    })
    const text = body === null ? "" : yield* textOf(body, answerBytesMax)
    return { status, headers: Object.fromEntries(headers), text }
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(secondsMax),
      orElse: () =>
        new HttpUnanswered({ problem: "slow", detail: `it did not answer within ${secondsMax} s` })
    })
  )

/** GitHub rejects requests without a user agent. */
const named = (request: Request): Request => {
  request.headers.set("user-agent", "cogni-sandbox")
  return request
}

const textOf = (body: ReadableStream<Uint8Array>, bytesMax: number): Effect.Effect<string, HttpUnanswered> =>
  Stream.fromReadableStream({ evaluate: () => body, onError: unanswered }).pipe(
    Stream.mapAccumEffect(
      () => 0,
      (before, chunk) => {
        const bytes = before + chunk.byteLength
        return bytes <= bytesMax
          ? Effect.succeed([bytes, [chunk]] as const)
          : new HttpUnanswered({ problem: "too_long", detail: `its answer is longer than ${bytesMax} bytes` })
      }
    ),
    Stream.decodeText,
    Stream.mkString
  )

/** Error codes of OpenSSL and Node for a failed or untrusted TLS handshake. */
const tlsCodes = /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL|EPROTO/u

const networkCodes = /^(?:E[A-Z]+|EAI_[A-Z]+|UND_ERR_[A-Z_]+)$/u

const unanswered = (error: unknown): HttpUnanswered => {
  const causes = error instanceof Error ? causesOf(error) : []
  const detail = causes.map(({ message }) => message).findLast((message) => message !== "") ?? String(error)
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
