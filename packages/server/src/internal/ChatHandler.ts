/**
 * Starts a run from a request, and streams its events.
 *
 * All refusals come before the first byte of the answer, with their own status. The run lives in the scope of its
 * request: when the reader disconnects or stops reading, the scope closes and the run ends.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { Clock, Effect, Option, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse, HttpTraceContext } from "effect/http"
import { RateLimiter } from "effect/persistence"
import * as AiSdkStream from "./AiSdkStream.ts"
import { CurrentGrant, withinRate } from "./Authentication.ts"
import * as ChatRequest from "./ChatRequest.ts"
import * as EventStream from "./EventStream.ts"
import { IdempotencyKeys } from "../IdempotencyKeys.ts"
import * as Problem from "./Problem.ts"
import { RunRoster } from "./RunRoster.ts"
import type { ServerLimits } from "../ServerLimits.ts"
import type { EndedRun } from "./ServerMetrics.ts"
import * as SseResponse from "./SseResponse.ts"

/** Response header with the run ID. */
export const runHeader = "x-cogni-run-id"

export interface ChatOptions {
  readonly limits: ServerLimits
  readonly model: string | undefined
  /** Called at the end of every run. Usage goes to the `GraphObserver` of the executor. */
  readonly count: (end: EndedRun) => Effect.Effect<void>
}

export interface ChatAsked {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly protocol: "events" | "ai-sdk" | undefined
  readonly idempotencyKey: string | undefined
}

export const make = Effect.fnUntraced(function* ({ count, limits, model }: ChatOptions) {
  const executor = yield* GraphExecutor
  const keys = yield* IdempotencyKeys
  const limiter = yield* RateLimiter.RateLimiter
  const roster = yield* RunRoster
  const store = yield* RunStore

  /** Fails if a run with this ID was ever recorded. A run ID is never reused. */
  const unused = (runId: RunId) =>
    store.describe(runId).pipe(
      Effect.catch(Problem.storeUnavailable),
      Effect.flatMap((record) =>
        record === undefined
          ? Effect.void
          : Effect.fail(
              Problem.make(
                "conflict",
                "RunIdInUse",
                `the run ID ${runId} is already in use. See /api/v1/runs/${runId}, or use another ID`
              )
            )
      )
    )

  return Effect.fn("SandboxServer.chat")(function* ({ idempotencyKey, protocol, request }: ChatAsked) {
    const grant = yield* CurrentGrant
    const body = yield* ChatRequest.read(request, limits.bodyBytesMax)
    const span = yield* Effect.option(Effect.currentSpan)
    const trace = { ...traceOf(request, Option.getOrUndefined(span)?.traceId), idempotencyKey }
    const asked = yield* ChatRequest.runOf(body, grant, trace, model).pipe(
      Effect.provideService(IdempotencyKeys, keys)
    )
    const { runId } = asked.context
    yield* withinRate(limiter, "runs", grant.id, limits.runsPerMinutePerGrantMax)
    const { billingAccountId } = grant
    const entry = {
      runId,
      grantId: grant.id,
      billingAccountId,
      graphId: body.graphId,
      model: asked.request.model,
      repository: body.repository?.url,
      concurrentRunsMax: grant.permissions.concurrentRunsMax
    }
    const place = yield* roster
      .claim(entry)
      .pipe(Effect.catch(({ problem, retrySeconds }) => Problem.retryLater(problem, retrySeconds)))
    yield* unused(runId)
    yield* executor.check(asked.request, asked.context).pipe(Effect.catch(Problem.refuse))

    const startedAt = yield* Clock.currentTimeMillis
    const run = yield* executor.run(asked.request, asked.context)
    // Detached, because the run also ends when its request does. `final` settles on every path.
    yield* Effect.forkDetach(
      Effect.gen(function* () {
        const final = yield* run.final
        const durationMs = (yield* Clock.currentTimeMillis) - startedAt
        yield* count({ graphId: body.graphId, final, durationMs })
      })
    )
    yield* place.cancelled.pipe(Effect.andThen(run.cancel), Effect.forkScoped)
    const encoder = protocol === AiSdkStream.protocol ? AiSdkStream.make(runId) : EventStream.make(runId)
    const texts = run.events.pipe(Stream.mapArray((events) => [encoder.encode(events)]))
    return HttpServerResponse.stream(yield* SseResponse.make(encoder.begin, texts, limits), {
      contentType: "text/event-stream; charset=utf-8",
      headers: { ...encoder.headers, [runHeader]: runId }
    })
  })
})

/** Returns the caller's request ID and trace ID, the ID of our own trace, or new ones. */
const traceOf = ({ headers }: HttpServerRequest.HttpServerRequest, ownTraceId: string | undefined) => {
  const requestId = headers["x-request-id"]
  const trace = Option.getOrUndefined(HttpTraceContext.w3c(headers))
  return {
    requestId: isIdentifier(requestId) ? requestId : `req-${crypto.randomUUID()}`,
    traceId: trace?.traceId ?? ownTraceId ?? crypto.randomUUID().replaceAll("-", "")
  }
}

const isIdentifier = (text: string | undefined): text is string =>
  text !== undefined && /^[\w.:-]{1,200}$/u.test(text)
