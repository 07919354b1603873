/**
 * What a caller asks of a graph, and how that becomes a run.
 *
 * Strict: a field that is not known is refused, so nobody believes that an account in a body is the one that pays. Who
 * pays, and in whose name it runs, is the grant's.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { problemsOf, ToolName } from "@cogni/sandbox-core/SandboxSpec"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { ByteSize, Effect, Schema } from "effect"
import { type HttpServerError, HttpIncomingMessage, type HttpServerRequest } from "effect/http"
import * as IdempotencyKeys from "../IdempotencyKeys.ts"
import * as Problem from "./Problem.ts"

const { budget, graphId, messages, personality, repository, runtimeSecondsMax } = GraphRunRequest.fields

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

export const ChatRequest = Schema.Struct({
  graphId,
  messages,
  /** Absent: the server's own. */
  model: Schema.optionalKey(Identifier),
  personality,
  repository,
  toolIds: Schema.optionalKey(Schema.Array(ToolName).check(Schema.isMaxLength(64))),
  runtimeSecondsMax,
  budget,
  /** A conversation that the run is part of. */
  threadId: Schema.optionalKey(Identifier),
  /** Never used before. Absent: from `Idempotency-Key`, or a new one. */
  runId: Schema.optionalKey(RunId.RunId),
  attempt: Schema.optionalKey(RunContext.fields.attempt)
}).annotate({ identifier: "ChatRequest" })

export type ChatRequest = typeof ChatRequest.Type

/** What the request was part of, besides its body. */
export interface ChatTrace {
  readonly requestId: string
  readonly traceId: string
  readonly idempotencyKey: string | undefined
}

/** A run, as the executor takes it. */
export interface ChatRun {
  readonly request: GraphRunRequest
  readonly context: RunContext
}

/** The body of a request, up to a size. */
export const read = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  bodyBytesMax: number
): Effect.fn.Return<ChatRequest, typeof Problem.TooLarge.Type | typeof Problem.Invalid.Type> {
  const tooLarge = Problem.make(
    "too_large",
    "BodyTooLarge",
    `the body has more than ${bodyBytesMax} bytes. Send fewer or shorter messages`
  )
  if (Number(request.headers["content-length"] ?? 0) > bodyBytesMax) return yield* Effect.fail(tooLarge)
  const text = yield* request.text.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(bodyBytesMax)),
    Effect.mapError((error) => (isTooLarge(error) ? tooLarge : invalid("BodyBroken", "the body broke off")))
  )
  const value = yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    // What the parser says repeats what it read.
    catch: () => invalid("BodyNotJson", "the body is no JSON. Send one object, as application/json")
  })
  return yield* decode(value).pipe(
    Effect.mapError((error) =>
      invalid("BodyInvalid", `the body is not what it should be: ${describe(error)}`)
    )
  )
})

export const runOf = Effect.fnUntraced(function* (
  body: ChatRequest,
  grant: ExecutionGrant,
  trace: ChatTrace,
  modelDefault: string | undefined
): Effect.fn.Return<ChatRun, typeof Problem.Invalid.Type, IdempotencyKeys.IdempotencyKeys> {
  const model = body.model ?? modelDefault
  if (model === undefined) {
    return yield* Effect.fail(
      invalid("ModelUnnamed", "no model is named, and this server has no own. Name one: model")
    )
  }
  if (body.runId !== undefined && trace.idempotencyKey !== undefined) {
    return yield* Effect.fail(
      invalid("RunNamedTwice", "runId and Idempotency-Key both name the run. Leave one of them out")
    )
  }
  if (body.runId !== undefined && IdempotencyKeys.isReserved(body.runId)) {
    return yield* Effect.fail(
      invalid(
        "RunIdReserved",
        "runId has the form of ids that follow from an Idempotency-Key. Choose another, or send the key"
      )
    )
  }
  const { attempt = 0, model: _model, runId: named, threadId, ...rest } = body
  const { billingAccountId, id: grantId } = grant
  const { idempotencyKey, requestId, traceId } = trace
  const keys = yield* IdempotencyKeys.IdempotencyKeys
  const runId =
    named ??
    (idempotencyKey === undefined
      ? yield* RunId.generate
      : yield* keys.runIdOf(billingAccountId, idempotencyKey))
  const session = threadId === undefined ? {} : { sessionId: threadId }
  return {
    request: {
      ...rest,
      model,
      caller: { billingAccountId, virtualKeyId: grantId, requestId, traceId, ...session }
    },
    context: {
      runId,
      attempt,
      ingressRequestId: requestId,
      grantId,
      ...(threadId === undefined ? {} : { threadId })
    }
  }
})

const decode = Schema.decodeUnknownEffect(ChatRequest, { errors: "all", onExcessProperty: "error" })

/** The first few of them, without the values that were sent. */
const describe = (error: Schema.SchemaError): string =>
  problemsOf(error)
    .slice(0, 5)
    .map((problem) =>
      problem
        .replace(/^messages\.0: Missing key$/u, "messages: at least one message is required")
        .replace(/: Missing key$/u, ": is required")
        .replace(/: Expected no excess property.*$/u, ": is not a known field")
    )
    .join("; ")

const invalid = (reason: string, message: string) => Problem.make("invalid_request", reason, message)

const isTooLarge = ({ reason }: HttpServerError.HttpServerError): boolean =>
  reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
