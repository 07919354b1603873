/**
 * The body of a chat request, and its conversion to a run.
 *
 * Strict: an unknown field is refused, so that no caller believes that an account in the body pays. The account and the
 * identity of a run always come from the grant.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { type GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { RunRequest } from "@cogni/sandbox-graph-provider/graphs/RunRequest"
import { Effect, Schema } from "effect"
import type { HttpServerRequest } from "effect/http"
import * as IdempotencyKeys from "../IdempotencyKeys.ts"
import * as JsonBody from "./JsonBody.ts"
import * as Problem from "./Problem.ts"

export const ChatRequest = Schema.Struct({
  ...RunRequest.fields,
  /** A run ID that was never used. Absent: derived from `Idempotency-Key`, or a new one. */
  runId: Schema.optionalKey(RunId.RunId),
  attempt: Schema.optionalKey(RunContext.fields.attempt)
}).annotate({ identifier: "ChatRequest" })

export type ChatRequest = typeof ChatRequest.Type

/** Identifiers of the request that are not in its body. */
interface ChatTrace {
  readonly requestId: string
  readonly traceId: string
  readonly idempotencyKey: string | undefined
}

/** The arguments of the executor for a run. */
export interface ChatRun {
  readonly request: GraphRunRequest
  readonly context: RunContext
}

/** Reads and validates the body of a request, up to a maximum size. */
export const read = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  bodyBytesMax: number
): Effect.fn.Return<ChatRequest, JsonBody.BodyProblem> {
  const value = yield* JsonBody.read(request, bodyBytesMax, "Send fewer or shorter messages")
  return yield* decode(withGraphId(value)).pipe(
    Effect.mapError((error) => invalid("BodyInvalid", `the body is invalid: ${describe(error)}`))
  )
})

/** Accepts `graphName`, the name of the source documents, instead of `graphId`. With both, the body is invalid. */
const withGraphId = (value: unknown): unknown => {
  if (typeof value !== "object" || value === null || !("graphName" in value) || "graphId" in value)
    return value
  const { graphName, ...rest } = value
  return { ...rest, graphId: graphName }
}

export const runOf = Effect.fnUntraced(function* (
  body: ChatRequest,
  grant: ExecutionGrant,
  trace: ChatTrace,
  modelDefault: string | undefined
): Effect.fn.Return<ChatRun, typeof Problem.Invalid.Type, IdempotencyKeys.IdempotencyKeys> {
  const model = body.model ?? modelDefault
  if (model === undefined) {
    return yield* Effect.fail(
      invalid("ModelUnnamed", "the request names no model, and this server has no default. Set model")
    )
  }
  if (body.runId !== undefined && trace.idempotencyKey !== undefined) {
    return yield* Effect.fail(
      invalid("RunNamedTwice", "runId and Idempotency-Key both specify the run ID. Omit one of them")
    )
  }
  const keys = yield* IdempotencyKeys.IdempotencyKeys
  if (body.runId !== undefined && keys.isReserved(body.runId)) {
    return yield* Effect.fail(
      invalid(
        "RunIdReserved",
        "runId has the form of IDs that are derived from an Idempotency-Key, or made for schedules. Choose another, or send a key"
      )
    )
  }
  const { attempt = 0, model: _model, runId: named, threadId, ...rest } = body
  const { billingAccountId, id: grantId } = grant
  const { idempotencyKey, requestId, traceId } = trace
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

/** Describes the first five problems, without the values that were sent. */
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
