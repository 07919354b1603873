/**
 * Starts a run that lives on without its caller, until it ends, is cancelled, or the server stops. A server with
 * `SubmittedRuns` submits it instead, and then it lives on without the server, too.
 *
 * The answer has only the run's ID. The run is followed by its record and its events, like the run of any other caller.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { SubmittedRuns } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Cause, Deferred, Effect, Exit, Option, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { retrySeconds, RunRoster } from "./RunRoster.ts"
import { type AskedRun, type RunStart, runHeader, type StartAsked } from "./RunStart.ts"
import * as RunView from "./RunView.ts"

type Refusal = Effect.Error<ReturnType<RunStart["start"]>>

/** Time after which a start without an event is answered. The clone of a large repository takes longer. */
const undecidedSecondsMax = 30

/** Its runs live in the scope of this effect: that of the server. */
export const make = Effect.fnUntraced(function* ({ check, read, start }: RunStart) {
  const scope = yield* Effect.scope
  const roster = yield* RunRoster
  const store = yield* RunStore
  const submitted = yield* Effect.serviceOption(SubmittedRuns)
  /** Runs that are being started: whether they may start is not decided yet. */
  const undecided = new Map<RunId, Deferred.Deferred<void, Refusal>>()

  /** Returns whether this run of the account was started before. Its ID was derived from the account and a key. */
  const isStarted = Effect.fnUntraced(function* (runId: RunId) {
    const { billingAccountId } = yield* CurrentGrant
    const here = yield* roster.find(runId)
    // The run of a chat ends with its reader, so it does not live on.
    if (here !== undefined) return here.isDetached === true && here.billingAccountId === billingAccountId
    const record = yield* store.describe(runId).pipe(Effect.catch(Problem.storeUnavailable))
    if (record !== undefined) return RunView.accountOf(record) === billingAccountId
    if (Option.isNone(submitted)) return false
    const waiting = yield* submitted.value.find(runId).pipe(Effect.catch(Problem.storeUnavailable))
    return waiting?.billingAccountId === billingAccountId
  })

  /** Waits for starts of the same run. If they are refused, this one is not their repetition: it has its own grant. */
  const isRepeatOf = Effect.fnUntraced(function* (runId: RunId) {
    for (let before = undecided.get(runId); before !== undefined; before = undecided.get(runId))
      if (Exit.isSuccess(yield* Effect.exit(Deferred.await(before)))) return true
    return yield* isStarted(runId)
  })

  /** Fails if a run ended before it had a record: nothing else would ever tell why. */
  const refused = Effect.fnUntraced(function* (runId: RunId, end: Extract<AiEvent, { type: "error" }>) {
    const record = yield* Effect.option(store.describe(runId))
    if (record._tag === "Some" && record.value !== undefined) return
    const { error, message, reason = "Refused" } = end
    const detail = message ?? "the run was refused before it started"
    yield* Effect.logWarning(`${runId} ended before it had a record: ${reason}`)
    // Its events do not say when to try again.
    const later = error === "rate_limit" ? { retrySeconds } : {}
    return yield* Problem.refuse(new GraphRefused({ error, reason, detail, ...later }))
  })

  /** Starts a run in a fiber of the server. A caller that leaves now does not change whether it starts. */
  const begin = Effect.fnUntraced(function* (asked: AskedRun) {
    const { runId } = asked.context
    const decision = yield* Deferred.make<void, Refusal>()
    undecided.set(runId, decision)
    const decided = Effect.sync(() => undecided.delete(runId))
    yield* Effect.gen(function* () {
      const run = yield* start(asked, { isDetached: true })
      const accept = Effect.andThen(Deferred.succeed(decision, undefined), decided)
      yield* Effect.sleep(`${undecidedSecondsMax} seconds`).pipe(Effect.andThen(accept), Effect.forkScoped)
      // Its journal has its events. A run whose events are not read would be considered left. It is admitted again when
      // it starts, so that only its first event tells whether it was.
      let hasBegun = false
      yield* Stream.runForEach(run.events, (event) => {
        if (hasBegun || event.type === "usage_report") return Effect.void
        hasBegun = true
        return event.type === "error" ? Effect.andThen(refused(runId, event), accept) : accept
      })
      yield* accept
      yield* run.closed
    }).pipe(
      Effect.scoped,
      Effect.catchCause((cause) =>
        Effect.flatMap(Deferred.failCause(decision, cause), (isDecision) =>
          // Its caller has the answer, so that only the log can say what happened since.
          isDecision || Cause.hasInterruptsOnly(cause)
            ? decided
            : Effect.andThen(Effect.logError(`${runId} failed unexpectedly after its start`, cause), decided)
        )
      ),
      Effect.forkIn(scope, { startImmediately: true })
    )
    return Deferred.await(decision)
  }, Effect.uninterruptible)

  /** Submits a run. Returns whether its key had submitted it before. */
  const submit = Effect.fnUntraced(function* (
    queue: SubmittedRuns["Service"],
    asked: AskedRun,
    hasKey: boolean
  ) {
    yield* check(asked)
    return yield* queue.submit(asked.request, asked.context).pipe(
      Effect.as(false),
      Effect.catch((refused) =>
        // Two requests with one key, at the same time: the ID is of this account.
        hasKey && refused.reason === "RunIdInUse" ? Effect.succeed(true) : Problem.refuse(refused)
      )
    )
  })

  return Effect.fn("SandboxServer.startRun")(function* (asked: StartAsked) {
    const run = yield* read(asked)
    const { runId } = run.context
    const hasKey = asked.idempotencyKey !== undefined
    let isRepeated = hasKey && (yield* isRepeatOf(runId))
    if (!isRepeated && Option.isSome(submitted)) isRepeated = yield* submit(submitted.value, run, hasKey)
    else if (!isRepeated) yield* yield* begin(run)
    return HttpServerResponse.jsonUnsafe(
      { runId, isRepeated },
      {
        status: 202,
        headers: {
          location: `/api/v1/runs/${runId}`,
          [runHeader]: runId,
          "cache-control": "private, no-store"
        }
      }
    )
  })
})
