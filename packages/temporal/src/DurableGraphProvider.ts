/**
 * Provider of the graphs `sandbox:*` whose runs are durable: each is submitted to Temporal, and followed.
 *
 * The same port as that of runs in this process, so an executor need not know where its runs are. Events come from the
 * journals of hosts (`RunJournal`), and the end from the outcome and the record. Both need the run database that the
 * hosts have. Ending a run from here cancels it on its host. A run goes on if this process dies.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import { RunIdInUse } from "@cogni/sandbox-core/SandboxReason"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantPermissions from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { sandboxNamespace } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphLife from "@cogni/sandbox-graph-provider/graphs/GraphLife"
import {
  type GraphProvider,
  type GraphRunRequest,
  type RunContext
} from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { SubmittedRuns, SubmittedRunsUnavailable } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import {
  Cause,
  Clock,
  Context,
  Deferred,
  Effect,
  Exit,
  Fiber,
  Layer,
  Option,
  Result,
  Schedule,
  Schema
} from "effect"
import { defaults, DurableRun } from "./DurableRun.ts"
import { DurableRuns } from "./DurableRuns.ts"
import * as RunEnd from "./internal/RunEnd.ts"
import * as RunEvents from "./internal/RunEvents.ts"
import type { TemporalFailed } from "./TemporalServer.ts"

/** Limits of every run. Default: `DurableRun.defaults`. */
export type DurableGraphOptions = Partial<
  Pick<DurableRun, "attemptsMax" | "hostGoneSecondsMax" | "needs" | "placementSecondsMax" | "wallSecondsMax">
>

export class DurableGraphProvider extends Context.Service<DurableGraphProvider, GraphProvider>()(
  "@cogni/sandbox-temporal/DurableGraphProvider"
) {}

/** Model of a request that leaves it to the host, whose server has a default. */
export const hostModel = "default of the host"

/** Time between two attempts to reach a server that does not answer. */
const askAgain = Schedule.spaced("2 seconds")

/** Time for the last events of a host, after the outcome is known. */
const lastEventsWait = "3 seconds"

/** Time until the end of a run that is ended from here. It then ends without its usage. */
const stopWait = "20 seconds"

const stops: Readonly<Record<GraphLife.Stop, string>> = {
  cancelled: "the run was cancelled",
  reader_left: "the run was ended because its reader left",
  reader_stalled: "the run was ended because its events were not read for too long"
}

const leftBefore = new GraphRefused({
  error: "aborted",
  reason: "Aborted",
  detail: "the run was not started: its reader left before"
})

const refusedAs =
  (error: GraphRefused["error"]) =>
  ({ _tag: reason, message: detail }: { readonly _tag: string; readonly message: string }) =>
    new GraphRefused({ error, reason, detail })

/** Why Temporal did not take a run. Its own words are for operators, and callers can be tenants. */
const ofTemporal = ({ isRetryable, message, reason }: TemporalFailed, runId: RunId): GraphRefused => {
  if (isRetryable)
    return new GraphRefused({
      error: "internal",
      reason: "TemporalUnreachable",
      detail: "the queue of durable runs does not answer. Try again in a moment",
      retrySeconds: 5
    })
  switch (reason) {
    case "RunIdInUse":
      return refusedAs("aborted")(new RunIdInUse({ runId }))
    case "RequestTooLarge":
      return new GraphRefused({ error: "invalid_request", reason, detail: message })
    default:
      return new GraphRefused({
        error: "internal",
        reason,
        detail: "the queue of durable runs refused the run. The operator of this server must correct that"
      })
  }
}

const outcomeUnknown = "the queue of durable runs does not tell how the run ended. See the record of the run"

const unavailable = ({ detail, remedy }: TemporalFailed) => new SubmittedRunsUnavailable({ detail, remedy })

const decodeRun = Schema.decodeUnknownEffect(Schema.toType(DurableRun), { errors: "all" })

/** Decides what can be decided here. The host decides the rest when it starts the run, such as the model. */
const makeAdmission = Effect.fnUntraced(function* (options: DurableGraphOptions) {
  const grants = yield* GrantStore
  const store = yield* RunStore
  const limits = { ...defaults, ...options }
  return Effect.fnUntraced(function* (
    request: GraphRunRequest,
    { grantId, runId, threadId }: RunContext
  ): Effect.fn.Return<DurableRun, GraphRefused> {
    const grant = yield* Effect.mapError(grants.find(grantId), refusedAs("internal"))
    const denied = refusedAs("authz_denied")
    if (grant === undefined) return yield* denied(new ExecutionGrant.GrantNotFound({ grantId }))
    const now = new Date(yield* Clock.currentTimeMillis)
    // Which models a grant without `models` allows is up to the host.
    const offer = { models: [request.model] }
    const { models, ...others } = grant.permissions
    const isOpen = request.model === hostModel
    const permissions = isOpen || models === undefined ? others : { ...others, models }
    yield* Effect.fromResult(ExecutionGrant.check(grant, request.graphId, now)).pipe(
      Effect.andThen(Effect.fromResult(ExecutionGrant.checkAccount(grant, request.caller.billingAccountId))),
      Effect.andThen(Effect.fromResult(GrantPermissions.decide(grantId, permissions, request, offer))),
      Effect.mapError(denied)
    )
    // Temporal does not know runs that were started on a host, or that it no longer retains.
    const record = yield* Effect.mapError(store.describe(runId), refusedAs("internal"))
    if (record !== undefined) return yield* refusedAs("aborted")(new RunIdInUse({ runId }))
    const { caller: _, model, ...rest } = request
    const asked = isOpen ? rest : { ...rest, model }
    const thread = threadId === undefined ? {} : { threadId }
    return yield* decodeRun({ ...limits, runId, grantId, request: { ...asked, ...thread } }).pipe(
      Effect.mapError(
        (error) =>
          new GraphRefused({
            error: "invalid_request",
            reason: "InvalidRequest",
            detail: problemsOf(error).slice(0, 5).join("; ")
          })
      )
    )
  })
})

const makeSubmit = Effect.fnUntraced(function* (options: DurableGraphOptions) {
  const runs = yield* DurableRuns
  const admit = yield* makeAdmission(options)
  /** Calls `created` if the run is new. It is not interrupted in between: then no one would know. */
  const submit = Effect.fnUntraced(function* (
    request: GraphRunRequest,
    context: RunContext,
    created: () => void = () => {}
  ) {
    const run = yield* admit(request, context)
    const { caller, model } = request
    const { billingAccountId } = caller
    yield* runs.submit(run, { billingAccountId, model }).pipe(
      Effect.andThen(Effect.sync(created)),
      Effect.tapError(({ message }) => Effect.logWarning(`${run.runId} was not submitted. ${message}`)),
      Effect.mapError((error) => ofTemporal(error, run.runId)),
      Effect.uninterruptible
    )
  })
  return { admit, submit }
})

/** Waits for the outcome, also while Temporal does not answer. */
const outcomeOf = (runs: DurableRuns["Service"], runId: RunId) =>
  Effect.retry(runs.wait(runId), { schedule: askAgain, while: ({ isRetryable }) => isRetryable })

const makeProvider = Effect.fnUntraced(function* (
  options: DurableGraphOptions
): Effect.fn.Return<GraphProvider, never, DurableRuns | GrantStore | RunStore> {
  const { admit, submit } = yield* makeSubmit(options)
  const runs = yield* DurableRuns
  const store = yield* RunStore
  const journal = yield* RunJournal
  const { attemptsMax } = { ...defaults, ...options }

  const concluded = Effect.fnUntraced(
    function* (request: GraphRunRequest, context: RunContext, { text }: RunEvents.Heard) {
      const outcome = yield* outcomeOf(runs, context.runId)
      const records = yield* Effect.forEach(outcome.attempts, ({ runId }) =>
        store.get(runId as RunId).pipe(
          Effect.map((record) =>
            record && RunEvents.isOf(record, request.caller.billingAccountId) ? record : undefined
          ),
          Effect.catch(({ message }) =>
            Effect.as(Effect.logWarning(`the record of ${runId} could not be read. ${message}`), undefined)
          )
        )
      )
      return RunEnd.make(request, context, { outcome, records, text })
    },
    (effect, request, context, { text }) =>
      effect.pipe(
        Effect.tapError(({ message }) =>
          Effect.logWarning(`the end of ${context.runId} is not known. ${message}`)
        ),
        Effect.catch(({ reason }) => {
          const failure = { error: "internal", reason, message: outcomeUnknown } as const
          return Effect.succeed(RunEnd.unknown(request, context, failure, text))
        })
      )
  )

  /** Emits the events of a run until its outcome is known. */
  const followed = Effect.fnUntraced(function* (
    { caller }: GraphRunRequest,
    { runId }: RunContext,
    { emit }: GraphLife.Life,
    heard: RunEvents.Heard
  ) {
    const { billingAccountId } = caller
    const ended = yield* Deferred.make<void>()
    const its = { runId, billingAccountId, attemptsMax, ended }
    const following = yield* RunEvents.follow(its, heard, emit).pipe(
      Effect.provideService(RunJournal, journal),
      Effect.provideService(RunStore, store),
      Effect.forkScoped({ startImmediately: true })
    )
    yield* Effect.ignore(outcomeOf(runs, runId))
    yield* Deferred.succeed(ended, undefined)
    yield* Effect.timeoutOption(Fiber.await(following), lastEventsWait)
  }, Effect.scoped)

  /** Ends a run on its host. In a fiber of its own: the one that runs this may be interrupted already. */
  const ended = Effect.fnUntraced(function* (
    request: GraphRunRequest,
    context: RunContext,
    message: string,
    heard: RunEvents.Heard
  ) {
    const unknown = RunEnd.unknown(
      request,
      context,
      { error: "aborted", reason: "Aborted", message },
      heard.text
    )
    const ending = runs.cancel(context.runId, request.caller.billingAccountId).pipe(
      Effect.retry({ schedule: askAgain, while: ({ isRetryable }) => isRetryable }),
      Effect.catch((error) =>
        error.reason === "RunNotFound" ? Effect.void : Effect.logWarning(`${context.runId}: ${error.message}`)
      ),
      Effect.andThen(concluded(request, context, heard)),
      Effect.timeoutOption(stopWait),
      Effect.map(Option.getOrElse(() => unknown))
    )
    const exit = yield* Fiber.await(yield* Effect.forkDetach(Effect.interruptible(ending)))
    return Exit.isSuccess(exit) ? exit.value : unknown
  })

  const run: GraphProvider["run"] = (request, context) => {
    const heard: RunEvents.Heard = { text: "" }
    // The run with this ID can be that of another account, which must not be ended.
    let isCreated = false
    const lived = Effect.fnUntraced(function* (life: GraphLife.Life) {
      const submitted = yield* Effect.result(submit(request, context, () => (isCreated = true)))
      if (Result.isFailure(submitted)) return RunEnd.refused(request, context, submitted.failure)
      const why = yield* Effect.raceFirst(
        Effect.as(followed(request, context, life, heard), undefined),
        life.stopped
      )
      if (why !== undefined) return yield* ended(request, context, stops[why], heard)
      const end = yield* concluded(request, context, heard)
      // The answer ends with what the host adds, such as the branch.
      const { content = "", ok } = end.final
      const rest = ok && content.startsWith(heard.text) ? content.slice(heard.text.length) : ""
      if (rest !== "") yield* life.emit([{ type: "text_delta", delta: rest }])
      return end
    })
    return GraphLife.make(context.runId, lived, (cause) =>
      Effect.andThen(
        Cause.hasInterruptsOnly(cause)
          ? Effect.void
          : Effect.logError("a durable run could not be followed", cause),
        Effect.suspend(() =>
          isCreated
            ? ended(request, context, stops.reader_left, heard)
            : Effect.succeed(RunEnd.refused(request, context, leftBefore))
        )
      )
    ).pipe(Effect.withSpan("DurableGraphProvider.run"))
  }

  return {
    providerId: sandboxNamespace,
    canHandle: (graphId) => graphId.startsWith(`${sandboxNamespace}:`),
    check: (request, context) => Effect.asVoid(admit(request, context)),
    run
  }
})

/** Runs durable graphs for an executor. */
export const layer = (
  options: DurableGraphOptions = {}
): Layer.Layer<DurableGraphProvider, never, DurableRuns | GrantStore | RunStore> =>
  Layer.effect(DurableGraphProvider, makeProvider(options))

/** The same runs for a server that submits them, and does not wait for their end. */
export const layerSubmitted = (
  options: DurableGraphOptions = {}
): Layer.Layer<SubmittedRuns, never, DurableRuns | GrantStore | RunStore> =>
  Layer.effect(
    SubmittedRuns,
    Effect.gen(function* () {
      const { submit } = yield* makeSubmit(options)
      const runs = yield* DurableRuns
      return SubmittedRuns.of({
        submit,
        find: (runId) => Effect.mapError(runs.find(runId), unavailable),
        ended: (runId) => Effect.asVoid(Effect.mapError(outcomeOf(runs, runId), unavailable)),
        underWay: (billingAccountId) => Effect.mapError(runs.underWay(billingAccountId), unavailable),
        cancel: (runId, billingAccountId) =>
          runs.cancel(runId, billingAccountId).pipe(
            Effect.as(true),
            Effect.catchIf(
              ({ reason }) => reason === "RunNotFound" || reason === "OwnerUnknown",
              () => Effect.succeed(false)
            ),
            Effect.mapError(unavailable)
          )
      })
    })
  )
