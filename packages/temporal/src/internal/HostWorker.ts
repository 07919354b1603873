/**
 * The worker of a host over Temporal's SDK. Loaded only when it is used, because the SDK may not be installed.
 *
 * It polls three queues. On the shared one it executes workflows, with the steps that need no certain host. On the
 * queue of placements it takes runs while it has room. On the queue of its host it starts and follows runs. It holds
 * nothing of a run, so it can be killed at any point.
 */
import { DefaultLogger, type LogLevel, NativeConnection, Runtime, Worker } from "@temporalio/worker"
import { Clock, Deferred, Effect, FiberSet, Ref, Schedule, type Scope } from "effect"
import { availableParallelism, totalmem } from "node:os"
import type { Keeper, KeeperError } from "../HostKeeper.ts"
import * as ActivityTrace from "./ActivityTrace.ts"
import * as Answering from "./Answering.ts"
import * as Connecting from "./Connecting.ts"
import * as HostActivities from "./HostActivities.ts"
import * as HostName from "./HostName.ts"
import * as HostRuns from "./HostRuns.ts"
import type { HostCapacity } from "./Placement.ts"
import * as PlacementSlots from "./PlacementSlots.ts"
import * as Reaching from "./Reaching.ts"
import { hostQueue, placementQueue } from "./Queues.ts"
import * as WorkflowCode from "./WorkflowCode.ts"
import { TemporalFailed, type TemporalServer } from "../TemporalServer.ts"

export interface HostWorkerOptions extends TemporalServer {
  /** Name of this host. No other host may have it, and it stays the same when the worker is started again. */
  readonly host: string
  /** A keeper for each grant whose runs this host takes. */
  readonly keepers: ReadonlyArray<Keeper>
  /** The offer of this host, without what its keepers tell. Default: the machine's cores and memory. */
  readonly capacity: Pick<HostCapacity, "runsMax" | "labels"> & {
    readonly cores?: number | undefined
    readonly memoryBytes?: number | undefined
  }
  /**
   * Version of this worker's workflows. A run stays with the version that it began with, so a worker of that version
   * must stay until its runs have ended. An operator tells Temporal which version new runs get. Default: none, and then
   * each worker must be able to go on with the runs of the last version.
   */
  readonly version?: { readonly deployment: string; readonly buildId: string } | undefined
  /**
   * Port of this machine at which Temporal's SDK serves its metrics, at `/metrics`. The SDK has them once for the
   * process: only the first worker of a process can name a port. Default: no metrics.
   */
  readonly metricsPort?: number | undefined
  /** Completes when no more runs are to be taken. Runs that this host has are then followed to their end. */
  readonly drain?: Effect.Effect<void>
  /** Runs once if a keeper does not answer at first, with the seconds for which it is asked again. */
  readonly waiting?: (secondsMax: number) => Effect.Effect<void>
  /** Runs when the worker polls. */
  readonly ready?: Effect.Effect<void>
}

/** Time that the keepers may take to start. */
const keeperSecondsMax = 60

/** The kind of a queue, in Temporal's API. */
const activityQueue = 2

/**
 * Shortest time between two heartbeats of a run. Each is a write to the database of the server, so that they limit the
 * number of runs that it can have. A worker counts as gone after ten seconds.
 */
const heartbeatMillis = 4000

/** Polls until it is drained or interrupted. */
export const serve = Effect.fnUntraced(function* (
  options: HostWorkerOptions
): Effect.fn.Return<void, TemporalFailed | KeeperError, Scope.Scope> {
  const { drain = Effect.never, host, namespace, ready = Effect.void, taskQueue } = options
  const asked = yield* Connecting.optionsOf(options)
  const keepers = yield* known(options)
  const capacity = {
    runsMax: options.capacity.runsMax,
    labels: options.capacity.labels,
    cores: options.capacity.cores ?? availableParallelism(),
    memoryBytes: options.capacity.memoryBytes ?? totalmem(),
    grantIds: keepers.map(({ grantId }) => grantId),
    graphIds: [...new Set(keepers.flatMap(({ graphIds }) => graphIds))]
  }
  const { hostId, missingGraphIds } = yield* knownHost(options.keepers)
  const runs = yield* HostRuns.make({
    name: host,
    hostId,
    capacity,
    keepers: new Map(keepers.map(({ grantId, keeper }) => [grantId, keeper]))
  })
  const queue = hostQueue(taskQueue, host)
  // Ends after the workers, which wait for their activities.
  const run = yield* FiberSet.makeRuntimePromise<never>()
  const activities = { ...HostActivities.make(runs, queue, run) }
  yield* Effect.sync(() => {
    log = (level, message) =>
      void run(Effect.logWithLevel(level === "ERROR" ? "Error" : "Debug")(`Temporal: ${message}`)).catch(
        () => undefined
      )
  })
  yield* install(options.metricsPort)
  const connection = yield* connected(options, asked)
  yield* runs.lack(missingGraphIds)
  const identity = HostName.identityOf(host, hostId, process.pid)
  const unique = nameIsUnique(connection, { namespace, queue, host, hostId, identity })
  yield* unique(() => true)
  yield* Effect.forkScoped(keepFacts(runs, options.keepers))
  const interceptors = { activity: [ActivityTrace.interceptor] }
  const common = {
    connection,
    interceptors,
    namespace,
    identity,
    shutdownGraceTime: 0,
    shutdownForceTime: "30 seconds",
    maxHeartbeatThrottleInterval: heartbeatMillis,
    defaultHeartbeatThrottleInterval: heartbeatMillis
  } as const
  const own = yield* worker(() =>
    Worker.create({
      ...common,
      taskQueue: queue,
      activities,
      // A run that was placed must not wait for a place here. Its delivery and its record take one too.
      maxConcurrentActivityTaskExecutions: capacity.runsMax * 2 + 10,
      activityTaskPollerBehavior: activityPolls
    })
  )
  const workflowBundle = yield* attempt("load its workflow", WorkflowCode.load)
  const shared = yield* worker(() =>
    Worker.create({
      ...common,
      taskQueue,
      activities,
      workflowBundle,
      ...versionOf(options),
      maxConcurrentActivityTaskExecutions: 20,
      activityTaskPollerBehavior: activityPolls,
      workflowTaskPollerBehavior: workflowPolls
    })
  )
  const placing = yield* worker(() =>
    Worker.create({
      ...common,
      taskQueue: placementQueue(taskQueue),
      activities,
      activityTaskPollerBehavior: activityPolls,
      tuner: {
        activityTaskSlotSupplier: PlacementSlots.make(runs, run),
        workflowTaskSlotSupplier: unused,
        localActivityTaskSlotSupplier: unused,
        nexusTaskSlotSupplier: unused
      }
    })
  )
  yield* ready
  // Until then, it executes the workflows of its runs, and refuses placements.
  const draining = drain.pipe(
    Effect.andThen(placing.shutdown),
    Effect.andThen(runs.drain),
    Effect.andThen(shared.shutdown),
    Effect.andThen(own.shutdown)
  )
  // Two that began at once see each other now. One of them goes on.
  const watching = HostName.watched(unique((other) => other < (hostId ?? "")))
  yield* Effect.raceAllFirst([
    Effect.all([own.ended, shared.ended, placing.ended], { concurrency: "unbounded", discard: true }),
    Effect.andThen(draining, Effect.never),
    watching
  ])
}, Effect.scoped)

/**
 * Open questions for tasks of one kind. The server keeps each of them for a minute, of all hosts. The SDK ignores its
 * options for a maximum (`maxConcurrentActivityTaskPolls`), and would ask ten times.
 */
const activityPolls = { type: "simple-maximum", maximum: 1 } as const

/** One for new workflows, and one for those of which this worker has the state. */
const workflowPolls = { type: "simple-maximum", maximum: 2 } as const

/** Tasks of a kind that a queue does not have. */
const unused = { type: "fixed-size", numSlots: 2 } as const

type KeeperHost = Effect.Success<Keeper["host"]>

const noFacts: KeeperHost = { missingGraphIds: [] }

/** The facts of the host, as its first keeper tells them. All keepers are of one host. */
const hostOf = ([keeper]: ReadonlyArray<Keeper>): Effect.Effect<KeeperHost, KeeperError> =>
  keeper?.host ?? Effect.succeed(noFacts)

/** The same, when the keeper has started. Nothing is known of a host whose keeper does not tell. */
const knownHost = (keepers: ReadonlyArray<Keeper>) =>
  whenReachable(hostOf(keepers), keeperSecondsMax).pipe(Effect.orElseSucceed(() => noFacts))

/** Asks again and again which images are missing. A keeper that does not answer changes nothing. */
const keepFacts = (runs: HostRuns.HostRuns, keepers: ReadonlyArray<Keeper>) =>
  hostOf(keepers).pipe(
    Effect.flatMap(({ missingGraphIds }) => runs.lack(missingGraphIds)),
    Effect.ignore,
    Effect.schedule(Schedule.spaced(`${HostName.factSeconds} seconds`))
  )

/** Connects until the end of the scope, and checks the namespace. */
const connected = Effect.fnUntraced(function* (options: HostWorkerOptions, asked: Connecting.ConnectOptions) {
  const connection = yield* Effect.acquireRelease(
    Reaching.reached(asked, () => NativeConnection.connect(asked)),
    (open) => Effect.ignore(Effect.promise(() => open.close()))
  )
  yield* Connecting.keepKey(options, asked.apiKey, (key) => Effect.promise(() => connection.setApiKey(key)))
  yield* namespaceExists(connection, options.namespace)
  return connection
})

/** Fails as a submission would. Otherwise the SDK refuses the namespace later, with an error of its own. */
const namespaceExists = (connection: NativeConnection, namespace: string) =>
  Answering.within(
    connection,
    "describe the namespace",
    () => connection.workflowService.describeNamespace({ namespace }),
    (error) => TemporalFailed.ofNamespace("describe the namespace", namespace, error)
  )

/** Fails if another host polls the queue of this name, and `isFirst` says that it was there before. */
const nameIsUnique =
  (
    connection: NativeConnection,
    {
      host,
      hostId,
      identity: own,
      namespace,
      queue
    }: Record<"host" | "identity" | "namespace" | "queue", string> & Pick<KeeperHost, "hostId">
  ) =>
  (isFirst: (other: string) => boolean): Effect.Effect<void, TemporalFailed> =>
    Effect.gen(function* () {
      if (hostId === undefined) return
      const what = "describe the queue of this host"
      const { pollers } = yield* Answering.within(
        connection,
        what,
        () =>
          connection.workflowService.describeTaskQueue({
            namespace,
            taskQueue: { name: queue },
            taskQueueType: activityQueue
          }),
        (error) => TemporalFailed.of(what, error)
      )
      const seen = (pollers ?? []).map(({ identity, lastAccessTime }) => ({
        identity: identity ?? "",
        seenMillis: Number(lastAccessTime?.seconds ?? 0) * 1000
      }))
      const other = HostName.otherHost(seen, own, yield* Clock.currentTimeMillis)
      if (other !== undefined && isFirst(other)) return yield* HostName.inUse(host, other)
    })

/** The version of the shared queue. The queue of a host has only activities, which any version may carry out. */
const versionOf = ({ version }: HostWorkerOptions) =>
  version === undefined
    ? {}
    : {
        workerDeploymentOptions: {
          version: { deploymentName: version.deployment, buildId: version.buildId },
          useWorkerVersioning: true,
          defaultVersioningBehavior: "PINNED"
        } as const
      }

/** Keepers with the grants for which they act. */
const known = Effect.fnUntraced(function* ({
  keepers,
  waiting = () => Effect.void
}: Pick<HostWorkerOptions, "keepers" | "waiting">) {
  const isTold = yield* Ref.make(false)
  const tell = Effect.flatMap(Ref.getAndSet(isTold, true), (before) =>
    before ? Effect.void : waiting(keeperSecondsMax)
  )
  return yield* Effect.forEach(keepers, (keeper) =>
    whenReachable(
      Effect.all([keeper.grant, keeper.graphIds]).pipe(
        Effect.map(([{ id }, graphIds]) => ({ keeper, grantId: id, graphIds })),
        Effect.tapError(({ _tag }) => (_tag === "KeeperUnreachable" ? tell : Effect.void))
      ),
      keeperSecondsMax
    )
  )
})

/** Retries until the keeper answers, such as while it starts, for at most some seconds. */
const whenReachable = <A, R>(effect: Effect.Effect<A, KeeperError, R>, secondsMax: number) =>
  Effect.retry(effect, {
    schedule: Schedule.spaced("500 millis").pipe(Schedule.upTo({ duration: `${secondsMax} seconds` })),
    while: (error) => error._tag === "KeeperUnreachable" || error.isForNow
  })

/** Creates a worker that polls until it is shut down, at the latest at the end of the scope. */
const worker = Effect.fnUntraced(function* (create: () => Promise<Worker>) {
  const made = yield* attempt("start a worker", create)
  const end = yield* Deferred.make<void, TemporalFailed>()
  const shutdown = Effect.sync(() => {
    if (made.getState() === "RUNNING") made.shutdown()
  })
  const polling = made.run().then(
    () => Deferred.doneUnsafe(end, Effect.void),
    (error: unknown) => Deferred.doneUnsafe(end, Effect.fail(TemporalFailed.of("poll", error)))
  )
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      shutdown,
      Effect.promise(() => polling)
    )
  )
  return { ended: Deferred.await(end), shutdown }
})

const attempt = <A>(what: string, task: () => Promise<A>): Effect.Effect<A, TemporalFailed> =>
  Effect.tryPromise({ try: task, catch: (error) => TemporalFailed.of(what, error) })

let isInstalled = false

/** Logs a message of the SDK, by the worker that was started last. */
let log: (level: LogLevel, message: string) => void = () => undefined

/**
 * The SDK would handle signals itself, and log to the console, as its native part would too. This is set once for the
 * process. Its warnings are for debugging: it warns of each placement that finds no room, of each run that did not
 * succeed, and of each call that it repeats.
 */
const install = (metricsPort: number | undefined) =>
  Effect.try({
    try: () => {
      if (isInstalled) return
      const logger = new DefaultLogger("WARN", ({ level, message }) => log(level, message))
      const telemetryOptions = {
        logging: { forward: {}, filter: { core: "WARN", other: "ERROR" } } as const,
        ...(metricsPort === undefined ? {} : { metrics: metricsAt(metricsPort) })
      }
      Runtime.install({ shutdownSignals: [], logger, telemetryOptions })
      isInstalled = true
    },
    catch: (error) =>
      new TemporalFailed({
        reason: "Failed",
        detail: `the metrics cannot be served on port ${metricsPort}: ${error instanceof Error ? error.message : String(error)}`,
        remedy: "Choose another --metrics-port"
      })
  })

/** The names of metrics as Prometheus wants them. */
const metricsAt = (port: number) => ({
  attachServiceName: false,
  prometheus: {
    bindAddress: `127.0.0.1:${port}`,
    countersTotalSuffix: true,
    unitSuffix: true,
    useSecondsForDurations: true
  }
})
