/**
 * Starts a run from a request. Every refusal comes first. Then the run lives in the scope that started it.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as AgentPersonalities from "@cogni/sandbox-graph-provider/agents/AgentPersonalities"
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { Clock, Effect, Option } from "effect"
import { type HttpServerRequest, HttpTraceContext } from "effect/http"
import { RateLimiter } from "effect/persistence"
import { CurrentGrant, withinRate } from "./Authentication.ts"
import * as ChatRequest from "./ChatRequest.ts"
import { IdempotencyKeys } from "../IdempotencyKeys.ts"
import * as Problem from "./Problem.ts"
import { type RosterEntry, RunRoster } from "./RunRoster.ts"
import type { ServerLimits } from "../ServerLimits.ts"
import type { EndedRun } from "./ServerMetrics.ts"

/** Response header with the run ID. */
export const runHeader = "x-cogni-run-id"

export interface StartOptions {
  readonly limits: ServerLimits
  readonly model: string | undefined
  /** Called at the end of every run. Usage goes to the `GraphObserver` of the executor. */
  readonly count: (end: EndedRun) => Effect.Effect<void>
}

export interface StartAsked {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly idempotencyKey: string | undefined
}

/** A run that a request asks for. Nothing of it exists yet. */
export interface AskedRun extends ChatRequest.ChatRun {
  readonly repository: string | undefined
}

export const make = Effect.fnUntraced(function* ({ count, limits, model }: StartOptions) {
  const catalog = yield* AgentCatalog
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

  /** The model of a request that names none: that of its personality, or else the server's. */
  const modelOf = ({ graphId, personality }: ChatRequest.ChatRequest) =>
    Effect.map(catalog.list, (agents) => {
      const capabilities = agents.find((agent) => agent.graphId === graphId)?.capabilities
      return (capabilities && AgentPersonalities.modelOf(capabilities, personality)) ?? model
    })

  return {
    /** Reads the body of a request. */
    read: Effect.fnUntraced(function* ({ idempotencyKey, request }: StartAsked) {
      const grant = yield* CurrentGrant
      const body = yield* ChatRequest.read(request, limits.bodyBytesMax)
      const span = yield* Effect.option(Effect.currentSpan)
      const trace = { ...traceOf(request, Option.getOrUndefined(span)?.traceId), idempotencyKey }
      const run = yield* ChatRequest.runOf(body, grant, trace, yield* modelOf(body)).pipe(
        Effect.provideService(IdempotencyKeys, keys)
      )
      return { ...run, repository: body.repository?.url } satisfies AskedRun
    }),
    /** Checks whether a run may start, for a server that does not run it itself. */
    check: Effect.fnUntraced(function* ({ context, request }: AskedRun) {
      const { id } = yield* CurrentGrant
      yield* withinRate(limiter, "runs", id, limits.runsPerMinutePerGrantMax)
      yield* unused(context.runId)
      yield* executor.check(request, context).pipe(Effect.catch(Problem.refuse))
    }),
    /** Starts a run in this scope. Closing the scope ends it. */
    start: Effect.fnUntraced(function* (
      { context, repository, request }: AskedRun,
      { isDetached }: Pick<RosterEntry, "isDetached"> = {}
    ) {
      const grant = yield* CurrentGrant
      const { runId } = context
      const { graphId } = request
      yield* withinRate(limiter, "runs", grant.id, limits.runsPerMinutePerGrantMax)
      const { billingAccountId } = grant
      const entry = {
        runId,
        grantId: grant.id,
        billingAccountId,
        graphId,
        model: request.model,
        repository,
        isDetached,
        concurrentRunsMax: grant.permissions.concurrentRunsMax
      }
      const place = yield* roster
        .claim(entry)
        .pipe(Effect.catch(({ problem, retrySeconds }) => Problem.retryLater(problem, retrySeconds)))
      yield* unused(runId)
      yield* executor.check(request, context).pipe(Effect.catch(Problem.refuse))

      const startedAt = yield* Clock.currentTimeMillis
      const run = yield* executor.run(request, context)
      // Detached, because the run also ends when its scope does. `final` settles on every path.
      yield* Effect.forkDetach(
        Effect.gen(function* () {
          const final = yield* run.final
          const durationMs = (yield* Clock.currentTimeMillis) - startedAt
          yield* count({ graphId, final, durationMs })
        })
      )
      yield* place.cancelled.pipe(Effect.andThen(run.cancel), Effect.forkScoped)
      return run
    })
  }
})

export type RunStart = Effect.Success<ReturnType<typeof make>>

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
