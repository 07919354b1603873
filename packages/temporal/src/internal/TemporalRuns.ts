/**
 * Durable runs over the client of Temporal's SDK. Loaded only when it is used, because the SDK may not be installed.
 */
import {
  Client,
  Connection,
  isGrpcServiceError,
  type WorkflowClient,
  type WorkflowClientInterceptor,
  WorkflowFailedError,
  WorkflowIdReusePolicy,
  WorkflowNotFoundError
} from "@temporalio/client"
import {
  ApplicationFailure,
  defineSearchAttributeKey,
  NamespaceNotFoundError,
  TerminatedFailure,
  TimeoutFailure,
  WorkflowExecutionAlreadyStartedError
} from "@temporalio/common"
import { Clock, Effect, Schema } from "effect"
import { DurableOutcome, DurableRun, type RunOwner } from "../DurableRun.ts"
import * as Answering from "./Answering.ts"
import * as Connecting from "./Connecting.ts"
import { livingMillis } from "./HostName.ts"
import * as Reaching from "./Reaching.ts"
import { runSecondsMax } from "./RunDeadline.ts"
import * as SearchValue from "./SearchValue.ts"
import * as TemporalLookUp from "./TemporalLookUp.ts"
import { type Parent, withParent } from "./TraceHeader.ts"
import type { WorkflowInput } from "./WorkflowInput.ts"
import { type RunsOptions, searchAttributes, TemporalFailed, type TemporalServer } from "../TemporalServer.ts"

/** Largest request as JSON. Temporal refuses values of more than 2 MiB. */
const requestBytesMax = 1536 * 1024

/** The kind of a queue, in Temporal's API. */
const workflowQueue = 1

/** Events of a workflow that no worker took: its start, its first task and its end. */
const untakenEvents = 3

/** Name of the workflow. */
const workflowType = "sandboxAgentRun"

const decodeOutcome = Schema.decodeUnknownEffect(DurableOutcome)

const encodeRun = Schema.encodeSync(Schema.toCodecJson(DurableRun))

/** Connects to a server until the end of the scope. */
export const connect = Effect.fnUntraced(function* (server: TemporalServer) {
  const asked = yield* Connecting.optionsOf(server)
  const connection = yield* Effect.acquireRelease(
    Reaching.reached(asked, () =>
      Connection.connect({
        ...asked,
        connectTimeout: `${Reaching.connectSecondsMax} seconds`,
        // A proxy of the environment would get what is meant for this machine.
        ...(asked.tls === false ? { channelArgs: { "grpc.enable_http_proxy": 0 } } : {})
      })
    ),
    (open) => Effect.ignore(Effect.promise(() => open.close()))
  )
  yield* Connecting.keepKey(server, asked.apiKey, (key) => Effect.sync(() => connection.setApiKey(key)))
  return connection
})

export const make = Effect.fnUntraced(function* (options: RunsOptions) {
  const { isSearchable, namespace, taskQueue } = options
  const connection = yield* connect(options)
  /** The span of each submission under way. */
  const parents = new Map<string, Parent>()
  const tracing: WorkflowClientInterceptor = {
    startWithDetails: (input, next) =>
      next({ ...input, headers: withParent(input.headers, parents.get(input.options.workflowId)) })
  }
  const { workflow } = new Client({ connection, namespace, interceptors: { workflow: [tracing] } })

  const wait = (runId: string) =>
    Effect.tryPromise({
      // A run that did not succeed is a failed workflow, with the outcome in its failure.
      try: (signal) =>
        workflow
          .withAbortSignal(signal, () => workflow.getHandle(runId).result() as Promise<unknown>)
          .catch((error: unknown) => (isTimedOut(error) ? timedOut(workflow, runId) : outcomeIn(error))),
      catch: (error) => waitFailed(runId, namespace, error)
    }).pipe(
      Effect.flatMap((outcome) =>
        decodeOutcome(outcome).pipe(
          Effect.mapError(
            () =>
              new TemporalFailed({
                reason: "Failed",
                detail: `the outcome of ${runId} is not one of this version`,
                remedy: "Update this command, or the workers"
              })
          )
        )
      ),
      Effect.withSpan("DurableRuns.wait")
    )

  return {
    ...TemporalLookUp.make(workflow, options, workflowType, wait),
    submit: Effect.fn("DurableRuns.submit")(function* (run: DurableRun, owner?: RunOwner) {
      const encoded = encodeRun(run) as unknown as DurableRun
      const bytes = Buffer.byteLength(JSON.stringify(encoded))
      if (bytes > requestBytesMax) {
        return yield* new TemporalFailed({
          reason: "RequestTooLarge",
          detail: `the request has ${bytes} bytes, of at most ${requestBytesMax}`,
          remedy: "Send fewer or shorter messages"
        })
      }
      const input: WorkflowInput = { run: encoded, isSearchable }
      parents.set(run.runId, yield* Effect.orDie(Effect.currentSpan))
      yield* Answering.within(
        workflow,
        "start the run",
        () =>
          workflow.start(workflowType, {
            args: [input],
            workflowId: run.runId,
            taskQueue,
            workflowExecutionTimeout: `${runSecondsMax(run)} seconds`,
            workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
            ...(owner === undefined ? {} : { memo: TemporalLookUp.memoOf(run, owner) }),
            ...(isSearchable ? { typedSearchAttributes: keysOf(attributesOf(run, owner)) } : {})
          }),
        (error) => startFailed(run, options, error)
      ).pipe(Effect.ensuring(Effect.sync(() => parents.delete(run.runId))))
    }),
    wait,
    hasWorkers: Answering.within(
      workflow,
      "describe the queue",
      () =>
        connection.workflowService.describeTaskQueue({
          namespace,
          taskQueue: { name: taskQueue },
          taskQueueType: workflowQueue
        }),
      (error) => failed("describe the queue", namespace, error)
    ).pipe(
      Effect.flatMap(({ pollers }) =>
        Effect.map(Clock.currentTimeMillis, (now) =>
          pollers.some(
            ({ lastAccessTime }) => now - Number(lastAccessTime?.seconds ?? 0) * 1000 < livingMillis
          )
        )
      ),
      Effect.withSpan("DurableRuns.hasWorkers")
    )
  }
})

/** The search attributes of a new run, by name, cut to what is stored. Its worker adds an account that is missing. */
export const attributesOf = (
  { request }: Pick<DurableRun, "request">,
  owner?: RunOwner
): Readonly<Record<string, string>> => ({
  CogniAgent: SearchValue.of(request.graphId),
  ...(owner === undefined ? {} : { CogniAccount: SearchValue.of(owner.billingAccountId) }),
  ...(request.repository === undefined ? {} : { CogniRepository: SearchValue.of(request.repository.url) }),
  CogniStatus: "submitted"
})

export const keysOf = (attributes: Readonly<Record<string, string>>) =>
  Object.entries(attributes).map(([name, value]) => ({
    key: defineSearchAttributeKey(name, "KEYWORD"),
    value
  }))

/** The status of gRPC for an invalid argument. */
const invalidArgument = 3

const causesOf = (error: unknown): ReadonlyArray<unknown> =>
  error instanceof Error && error.cause !== undefined ? [error, ...causesOf(error.cause)] : [error]

const startFailed = ({ runId }: DurableRun, { isSearchable, namespace }: RunsOptions, error: unknown) => {
  if (error instanceof WorkflowExecutionAlreadyStartedError) {
    return new TemporalFailed({
      reason: "RunIdInUse",
      detail: `a durable run ${runId} exists already`,
      remedy: "Look it up in Temporal, or choose another --run-id"
    })
  }
  return isSearchable && isInvalid(error)
    ? attributesMissing(namespace)
    : failed("start the run", namespace, error)
}

export const isInvalid = (error: unknown): boolean =>
  causesOf(error).some((one) => isGrpcServiceError(one) && one.code === invalidArgument)

export const attributesMissing = (namespace: string) =>
  new TemporalFailed({
    reason: "SearchAttributesMissing",
    detail: `namespace ${namespace} refused the search attributes`,
    remedy:
      "Create them: temporal operator search-attribute create " +
      `${searchAttributes.map((name) => `--name ${name} --type Keyword`).join(" ")}. Or use --no-search`
  })

const waitFailed = (runId: string, namespace: string, error: unknown) => {
  if (error instanceof WorkflowNotFoundError) {
    return TemporalLookUp.notFound(runId, namespace)
  }
  if (error instanceof WorkflowFailedError && error.cause instanceof TerminatedFailure) {
    return new TemporalFailed({
      reason: "Failed",
      detail: `the durable run ${runId} was terminated in Temporal, so its outcome is not recorded`,
      remedy: "The server of its host has the record of the run"
    })
  }
  return failed("tell how the run ended", namespace, error)
}

export const failed = (what: string, namespace: string, error: unknown) =>
  causesOf(error).some((one) => one instanceof NamespaceNotFoundError)
    ? new TemporalFailed({
        reason: "NamespaceNotFound",
        detail: `there is no namespace ${namespace}`,
        remedy: "Create it, or name another one with --namespace"
      })
    : TemporalFailed.of(what, error)

/** Whether Temporal ended a workflow, because no worker of it has done so in time. */
const isTimedOut = (error: unknown): boolean =>
  error instanceof WorkflowFailedError && error.cause instanceof TimeoutFailure

/** Returns the outcome of a run whose workflow Temporal ended. Its cost is unknown if a worker had begun it. */
const timedOut = async (workflow: WorkflowClient, runId: string): Promise<DurableOutcome> => {
  const { historyLength } = await workflow.getHandle(runId).describe()
  const attempt = {
    runId,
    attempt: 0,
    host: "unknown",
    status: "unknown",
    spend: { calls: 0, isFinal: false },
    lastEventId: 0
  }
  return {
    runId,
    status: "stopped",
    reason: "WallClockExceeded",
    message: "the run exceeded its time limit (wallSecondsMax), and no worker was there to end it",
    attempts: historyLength > untakenEvents ? [attempt] : []
  }
}

/** Returns the outcome that a workflow failed with, or throws the error. */
const outcomeIn = (error: unknown): unknown => {
  const cause = error instanceof WorkflowFailedError ? error.cause : undefined
  const outcome: unknown = cause instanceof ApplicationFailure ? cause.details?.[0] : undefined
  if (outcome === undefined) throw error
  return outcome
}
