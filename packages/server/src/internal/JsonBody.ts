/** Reads the body of a request as JSON, up to a maximum size and complexity. */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import { ByteSize, Effect } from "effect"
import { type HttpServerError, HttpIncomingMessage, type HttpServerRequest } from "effect/http"
import * as Problem from "./Problem.ts"

export type BodyProblem = typeof Problem.TooLarge.Type | typeof Problem.Invalid.Type

/** Reads any JSON value. `remedy` says how to make a body smaller. */
export const read = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  bodyBytesMax: number,
  remedy: string
): Effect.fn.Return<unknown, BodyProblem> {
  const tooLarge = Problem.make(
    "too_large",
    "BodyTooLarge",
    `the body has more than ${bodyBytesMax} bytes. ${remedy}`
  )
  if (Number(request.headers["content-length"] ?? 0) > bodyBytesMax) return yield* Effect.fail(tooLarge)
  const text = yield* request.text.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(bodyBytesMax)),
    Effect.mapError((error) => (isTooLarge(error) ? tooLarge : invalid("BodyBroken", "the body is cut off")))
  )
  const problem = JsonSurvey.problemOf(new TextEncoder().encode(text))
  if (problem !== undefined)
    return yield* Effect.fail(invalid("BodyTooComplex", `the body ${problem}. Send fewer or simpler values`))
  return yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    // Without the parser's message, which repeats the body.
    catch: () => invalid("BodyNotJson", "the body is not JSON. Send one object, as application/json")
  })
})

const invalid = (reason: string, message: string) => Problem.make("invalid_request", reason, message)

const isTooLarge = ({ reason }: HttpServerError.HttpServerError): boolean =>
  reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
