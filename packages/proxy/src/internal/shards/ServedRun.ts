/**
 * One run that a shard serves, seen from the main thread: what it observes, what it asks of the host's tools, and its
 * last word, which is there even when the shard is not.
 */
import { Deferred, Duration, Effect, Option, type Scope } from "effect"
import * as CallbackFibers from "../CallbackFibers.ts"
import * as GatewayAnswers from "../gateway/GatewayAnswers.ts"
import type { LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import type { AuditProblem } from "../audit/AuditFile.ts"
import * as GatewayTools from "../GatewayTools.ts"
import * as Questions from "../Questions.ts"
import type { FromRecovery, FromRun, RunStart, RunTraffic, ToRun } from "./ShardMessage.ts"
import type { ShardPool } from "./ShardPool.ts"
import type { ToolRequest } from "../gateway/ToolPort.ts"

export interface ServedRun {
  /** Settles when its socket listens. */
  readonly listening: Effect.Effect<void, ProxyFailed>
  /** Never succeeds; fails when it cannot be served any more. */
  readonly failure: Effect.Effect<never, ProxyFailed>
  readonly traffic: Effect.Effect<RunTraffic, ProxyFailed>
  /** The last word. Asked again, it says the same. */
  readonly finish: Effect.Effect<RunTraffic, ProxyFailed>
}

export interface ServedRunOptions {
  readonly pool: ShardPool
  readonly start: RunStart
  readonly request: LlmRequest
  readonly tools: ReadonlyArray<Tool>
}

/** How long what was observed may take to be told. */
const tellMillisMax = 2000

/** How long the audit of a lost run may take to be read again and closed. */
const recoverySecondsMax = 60

/** How long a shard that lives, and the recovery of one that does not, may take to answer. */
const answerSecondsMax = 90

/** Its socket is closed with the scope, at the latest. */
export const make = Effect.fnUntraced(function* (
  options: ServedRunOptions
): Effect.fn.Return<ServedRun, ProxyFailed, Scope.Scope> {
  const { pool, request, start } = options
  const lease = yield* pool.lease
  const port = yield* Effect.acquireRelease(
    Effect.sync(() => lease.send((other) => ({ type: "open", run: start, port: other }))),
    (open) => Effect.sync(() => open.close())
  )
  const listening = yield* Deferred.make<void, ProxyFailed>()
  const failed = yield* Deferred.make<never, ProxyFailed>()
  const finished = yield* Deferred.make<RunTraffic>()
  const observations = yield* CallbackFibers.make
  const toolCalls = yield* CallbackFibers.make
  const say = (message: ToRun) => port.postMessage(message)
  const questions = Questions.make<RunTraffic>()
  const tools = yield* GatewayTools.make({
    request,
    tools: options.tools,
    sighted: (sighting) => say({ type: "sighted", sighting }),
    called: (fact) => say({ type: "tool_called", fact })
  })
  const fail = (problem: AuditProblem) => {
    const error = Effect.fail(new ProxyFailed(problem))
    Deferred.doneUnsafe(listening, error)
    Deferred.doneUnsafe(failed, error)
  }
  port.on("message", (message: FromRun) => {
    switch (message.type) {
      case "opened":
        return void Deferred.doneUnsafe(listening, Effect.void)
      case "failed":
        return fail(message.problem)
      case "observed":
        return observations.fork(request.observe(message.observation))
      case "tool":
        return toolCalls.fork(
          Effect.map(answerOf(tools.handle, message.request), (answer) =>
            say({ type: "tool_answer", serial: message.serial, answer })
          )
        )
      case "traffic":
        return questions.answered(message.serial, message.traffic)
      case "finished":
        return void Deferred.doneUnsafe(finished, Effect.succeed(message.traffic))
    }
  })
  const lost = Effect.map(
    lease.lost,
    (reason) => `the gateway's thread that served this run is lost: ${reason}`
  )
  yield* Effect.forkScoped(Effect.map(lost, (reason) => fail({ detail: reason, remedy: lostRemedy })))

  // Only when the thread is gone: what it was still writing must not end up behind what is written next.
  const recovered = yield* Effect.cached(
    Effect.flatMap(lost, (reason) => Effect.andThen(lease.ended, recover(options, reason)))
  )
  /** What the shard says, or what its audit says where the shard is gone. */
  const orRecovered = (said: Effect.Effect<RunTraffic>) =>
    Effect.raceFirst(Effect.asSome(said), Effect.as(lost, Option.none<RunTraffic>())).pipe(
      Effect.flatMap(Option.match({ onNone: () => recovered, onSome: Effect.succeed })),
      Effect.timeoutOrElse({
        duration: Duration.seconds(answerSecondsMax),
        orElse: () => Effect.fail(new ProxyFailed(silent))
      })
    )
  const finish = yield* Effect.cached(
    tools.close.pipe(
      Effect.andThen(Effect.sync(() => say({ type: "finish" }))),
      Effect.andThen(orRecovered(Deferred.await(finished))),
      // The run waits for what was observed before it says its last word.
      Effect.tap(Effect.timeoutOption(observations.awaitEmpty, Duration.millis(tellMillisMax))),
      Effect.uninterruptible
    )
  )
  return {
    listening: Deferred.await(listening),
    failure: Deferred.await(failed),
    // The shard answers no question any more once it has said its last word.
    traffic: orRecovered(
      Effect.raceFirst(
        Deferred.await(finished),
        questions.ask((serial) => say({ type: "traffic", serial }))
      )
    ),
    finish
  }
})

const silent: AuditProblem = {
  detail: `the gateway's thread did not say what went through within ${answerSecondsMax} s`,
  remedy: "See that the disk of the run's directory answers; its audit holds what was written"
}

const lostRemedy =
  "Run again: other runs were not touched. If it happens again, see in the run's audit what the agent kept asking for"

/** A tool's defect, or its own interruption, is one call's bad answer: no call is left without one. */
const answerOf = (tools: GatewayTools.GatewayTools["handle"], request: ToolRequest) =>
  Effect.catchCause(tools(request), () =>
    Effect.succeed(GatewayAnswers.render(GatewayAnswers.busy, "openai"))
  )

/** Another shard reads the audit of a run whose own is lost, and closes it. */
const recover = Effect.fnUntraced(function* ({ pool, start }: ServedRunOptions, reason: string) {
  const { lost, send } = yield* pool.lease
  const { auditParent, runId } = start
  const remedy = "Keep the run's directory: its audit holds every call up to then"
  const failed = (detail: string) => Effect.fail(new ProxyFailed({ detail, remedy }))
  const told = Effect.callback<RunTraffic, ProxyFailed>((resume) => {
    const port = send((other) => ({ type: "recover", run: { runId, auditParent, reason }, port: other }))
    port.on("message", (message: FromRecovery) =>
      resume(
        message.type === "recovered"
          ? Effect.succeed(message.traffic)
          : Effect.fail(new ProxyFailed(message.problem))
      )
    )
    return Effect.sync(() => port.close())
  })
  return yield* Effect.raceFirst(told, Effect.flatMap(lost, failed)).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(recoverySecondsMax),
      orElse: () => failed(`the run's audit was not read again within ${recoverySecondsMax} s`)
    })
  )
}, Effect.scoped)
