/**
 * Starts a run from a request, and streams its events.
 *
 * All refusals come before the first byte of the answer, with their own status. The run lives in the scope of its
 * request: when the reader disconnects or stops reading, the scope closes and the run ends.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import type { GraphRun } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { Clock, Effect, Fiber, Option, type Scope, Stream } from "effect"
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
    const trace = { ...traceOf(request), idempotencyKey }
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
    return HttpServerResponse.stream(yield* streamOf(run, encoder, limits), {
      contentType: "text/event-stream; charset=utf-8",
      headers: { ...encoder.headers, [runHeader]: runId }
    })
  })
})

/** Merges the events with regular heartbeat comments. Buffers nothing for a slow reader. */
const streamOf = Effect.fnUntraced(function* (
  run: GraphRun,
  encoder: EventStream.EventEncoder,
  { heartbeatSeconds, streamIdleSecondsMax }: ServerLimits
): Effect.fn.Return<Stream.Stream<Uint8Array>, never, Scope.Scope> {
  const utf8 = new TextEncoder()
  const taken = yield* endWhenStalled(streamIdleSecondsMax)
  const events = run.events.pipe(Stream.mapArray((events) => [utf8.encode(encoder.encode(events))]))
  const heartbeats = Stream.tick(`${heartbeatSeconds} seconds`).pipe(
    Stream.drop(1),
    Stream.map(() => utf8.encode(EventStream.heartbeat))
  )
  return Stream.make(utf8.encode(encoder.begin)).pipe(
    Stream.concat(Stream.merge(events, heartbeats, { haltStrategy: "left" })),
    Stream.tap(() => taken)
  )
})

/**
 * Ends the request if its stream was not read for `secondsMax`. Heartbeats are always available, so an unread stream
 * means a reader that does not read, for which the platform would wait without limit.
 */
const endWhenStalled = Effect.fnUntraced(function* (secondsMax: number) {
  const request = Option.getOrUndefined(Option.fromUndefinedOr(Fiber.getCurrent()))
  let pieces = 0
  const watch: Effect.Effect<void> = Effect.suspend(() => {
    const before = pieces
    return Effect.sleep(`${secondsMax} seconds`).pipe(
      Effect.flatMap(() => (pieces === before ? Effect.sync(() => request?.interruptUnsafe()) : watch))
    )
  })
  yield* Effect.forkScoped(watch)
  return Effect.sync(() => {
    pieces += 1
  })
})

/** Returns the caller's request ID and trace ID, or generates them. */
const traceOf = ({ headers }: HttpServerRequest.HttpServerRequest) => {
  const requestId = headers["x-request-id"]
  const trace = Option.getOrUndefined(HttpTraceContext.w3c(headers))
  return {
    requestId: isIdentifier(requestId) ? requestId : `req-${crypto.randomUUID()}`,
    traceId: trace?.traceId ?? crypto.randomUUID().replaceAll("-", "")
  }
}

const isIdentifier = (text: string | undefined): text is string =>
  text !== undefined && /^[\w.:-]{1,200}$/u.test(text)
