/**
 * A run that a shard serves, seen from the main thread: its observations, its requests to the host's tools, and its
 * final traffic, which is available even if the shard is lost.
 */
import { Deferred, Duration, Effect, Option, type Scope } from "effect"
import * as CallbackFibers from "../CallbackFibers.ts"
import * as GatewayAnswers from "../gateway/GatewayAnswers.ts"
import type { LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import type { RunKeyed } from "../../AuditEntry.ts"
import type { AuditProblem } from "../audit/AuditFile.ts"
import * as GatewayTools from "../GatewayTools.ts"
import * as Questions from "../Questions.ts"
import type { FromRecovery, FromRun, RunStart, RunTraffic, ToRun } from "./ShardMessage.ts"
import * as ThreadCode from "../ThreadCode.ts"
import type { KeyDesk } from "./KeyDesk.ts"
import type { KeyTold } from "../gateway/UpstreamKeys.ts"
import * as ShardPool from "./ShardPool.ts"

export interface ServedRun {
  /** Settles when the run's socket listens. */
  readonly listening: Effect.Effect<void, ProxyFailed>
  /** Never succeeds. Fails when the run can no longer be served. */
  readonly failure: Effect.Effect<never, ProxyFailed>
  readonly traffic: Effect.Effect<RunTraffic, ProxyFailed>
  /** Ends the run and returns its final traffic. Repeated calls return the same. */
  readonly finish: Effect.Effect<RunTraffic, ProxyFailed>
  /** Writes into the audit which key the run has. */
  readonly keyed: (fact: RunKeyed) => Effect.Effect<void>
}

interface ServedRunOptions {
  readonly pool: ShardPool.ShardPool
  readonly start: RunStart
  readonly request: LlmRequest
  readonly tools: ReadonlyArray<Tool>
  readonly desk: Pick<KeyDesk, "answer">
  /** Where calls ask for an approval, and how long they wait. */
  readonly approvals: GatewayTools.GatewayApprovals
}

/** How long the handling of observations may take at the end. */
const tellMillisMax = 2000

/** How long the recovery of a lost run's audit may take. */
const recoverySecondsMax = 60

/** How long a live shard, or the recovery of a lost one, may take to answer. */
const answerSecondsMax = 90

/** Starts to serve a run on a shard. Closing the scope closes the run's socket. */
export const make = Effect.fnUntraced(function* (
  options: ServedRunOptions
): Effect.fn.Return<ServedRun, ProxyFailed, Scope.Scope> {
  const { desk, pool, request, start } = options
  const lease = yield* pool.lease
  const port = yield* Effect.acquireRelease(
    Effect.sync(() => lease.send((other) => ({ type: "open", run: start, port: other }))),
    (open) => Effect.sync(() => open.close())
  )
  const listening = yield* Deferred.make<void, ProxyFailed>()
  const failed = yield* Deferred.make<never, ProxyFailed>()
  const finished = yield* Deferred.make<RunTraffic>()
  const observations = yield* CallbackFibers.make
  /** Fibers of questions that the shard waits for: calls of tools, and keys. */
  const answers = yield* CallbackFibers.make
  const say = (message: ToRun) => port.postMessage(message)
  const questions = Questions.make<RunTraffic>()
  /** Calls in progress whose client has not gone, by serial number. */
  const calls = new Map<number, Deferred.Deferred<void>>()
  const { llm } = request
  const tools =
    llm === undefined
      ? GatewayTools.none
      : yield* GatewayTools.make({
          request: { ...request, llm },
          tools: options.tools,
          sighted: (sighting) => say({ type: "sighted", sighting }),
          called: (fact) => say({ type: "tool_called", fact }),
          approvals: options.approvals,
          approval: (fact) => say({ type: "approval", fact })
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
      case "troubled":
        return observations.fork(
          Effect.logWarning(
            `The gateway refused a request of ${start.runId}: ${new ProxyFailed(message.problem).message}`
          )
        )
      case "observed":
        return observations.fork(request.observe(message.observation))
      case "tool": {
        const { request, serial } = message
        const gone = Deferred.makeUnsafe<void>()
        calls.set(serial, gone)
        return answers.fork(
          answerOf(tools.handle(request, Deferred.await(gone))).pipe(
            Effect.map((answer) => say({ type: "tool_answer", serial, answer })),
            Effect.ensuring(Effect.sync(() => calls.delete(serial)))
          )
        )
      }
      case "tool_gone": {
        const gone = calls.get(message.serial)
        return gone === undefined ? undefined : void Deferred.doneUnsafe(gone, Effect.void)
      }
      case "key":
        return answers.fork(
          Effect.map(toldOf(desk.answer(message.ask)), (told) =>
            say({ type: "key_told", serial: message.serial, told })
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
  const remedyOf = (reason: string) =>
    reason.endsWith(ShardPool.programMissing) ? ThreadCode.missingRemedy : lostRemedy
  yield* Effect.forkScoped(Effect.map(lost, (reason) => fail({ detail: reason, remedy: remedyOf(reason) })))

  // Waits until the thread has ended, so that its last writes cannot follow those of the recovery.
  const recovered = yield* Effect.cached(
    Effect.flatMap(lost, (reason) => Effect.andThen(lease.ended, recover(options, reason)))
  )
  /** The shard's answer, or the traffic recovered from the audit if the shard is lost. */
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
      // The run handles its observations before it reports its final traffic.
      Effect.tap(Effect.timeoutOption(observations.awaitEmpty, Duration.millis(tellMillisMax))),
      Effect.uninterruptible
    )
  )
  return {
    listening: Deferred.await(listening),
    failure: Deferred.await(failed),
    // The shard answers no more questions after it has sent the final traffic.
    traffic: orRecovered(
      Effect.raceFirst(
        Deferred.await(finished),
        questions.ask((serial) => say({ type: "traffic", serial }))
      )
    ),
    finish,
    keyed: (fact) => Effect.sync(() => say({ type: "keyed", fact }))
  }
})

const silent: AuditProblem = {
  detail: `the gateway's thread did not report the run's traffic within ${answerSecondsMax} s`,
  remedy: "Check that the disk of the run's directory responds. The audit contains what was written so far"
}

const lostRemedy =
  "Run again: other runs are not affected. If it happens again, check the run's audit for the agent's repeated requests"

/** Answers a call even if its tool has a defect or interrupts itself, so that every call gets an answer. */
const answerOf = (handled: Effect.Effect<GatewayAnswers.Answer>) =>
  Effect.catchCause(handled, () => Effect.succeed(GatewayAnswers.render(GatewayAnswers.busy, "openai")))

/** Answers even if the source of the key interrupts itself, so that the call does not wait until its timeout. */
const toldOf = (answer: Effect.Effect<KeyTold>) =>
  Effect.catchCause(answer, () =>
    Effect.succeed<KeyTold>({ _tag: "Unavailable", detail: "its source gave up", isRetryable: true })
  )

/** Has another shard read and close the audit of a run whose shard was lost. */
const recover = Effect.fnUntraced(function* ({ pool, start }: ServedRunOptions, reason: string) {
  const { lost, send } = yield* pool.lease
  const { auditParent, runId } = start
  const remedy = "Keep the run's directory: its audit contains every call up to that point"
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
      orElse: () => failed(`the run's audit was not recovered within ${recoverySecondsMax} s`)
    })
  )
}, Effect.scoped)
