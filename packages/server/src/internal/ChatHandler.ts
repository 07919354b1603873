/**
 * From a request for a run to the stream of its events.
 *
 * All that can be refused is refused before the first byte of the answer, with a status of its own. The run lives in
 * the scope of its request: when the reader goes away, or takes nothing for long, the scope closes and the run ends.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import type { GraphRun } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { GraphObserver, type ObservedEnd } from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import { Effect, Fiber, Option, type Scope, Stream } from "effect"
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

/** Which run an answer is of. */
export const runHeader = "x-cogni-run-id"

export interface ChatOptions {
  readonly limits: ServerLimits
  readonly model: string | undefined
  /** Told of every run besides whoever is told already. */
  readonly observe: (end: ObservedEnd) => Effect.Effect<void>
}

export interface ChatAsked {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly protocol: "events" | "ai-sdk" | undefined
  readonly idempotencyKey: string | undefined
}

export const make = Effect.fnUntraced(function* ({ limits, model, observe }: ChatOptions) {
  const executor = yield* GraphExecutor
  const keys = yield* IdempotencyKeys
  const limiter = yield* RateLimiter.RateLimiter
  const roster = yield* RunRoster
  const store = yield* RunStore
  const others = yield* GraphObserver
  const observer = (end: ObservedEnd) => Effect.andThen(observe(end), others(end))

  /** An id is for one run, for ever. */
  const unused = (runId: RunId) =>
    store.describe(runId).pipe(
      Effect.mapError(Problem.ofStore),
      Effect.flatMap((record) =>
        record === undefined
          ? Effect.void
          : Effect.fail(
              Problem.make(
                "conflict",
                "RunIdInUse",
                `${runId} is on record already: see /api/v1/runs/${runId}, or ask under another id`
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

    const run = yield* executor
      .run(asked.request, asked.context)
      .pipe(Effect.provideService(GraphObserver, observer))
    yield* place.cancelled.pipe(Effect.andThen(run.cancel), Effect.forkScoped)
    const encoder = protocol === AiSdkStream.protocol ? AiSdkStream.make(runId) : EventStream.make(runId)
    return HttpServerResponse.stream(yield* streamOf(run, encoder, limits), {
      contentType: "text/event-stream; charset=utf-8",
      headers: { ...encoder.headers, [runHeader]: runId }
    })
  })
})

/** The events, and a comment where there are none for long. Nothing waits here that is not taken. */
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
 * The request is ended when its stream takes nothing for so long. A heartbeat is always there to be taken, so that is a
 * reader who does not read; the platform would wait for it for ever.
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

/** What a caller calls its request and its trace, where it does. */
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
