/** Serves one run in its shard, from the audit's first entry to its last. */
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as CallPace from "@cogni/sandbox-core/CallPace"
import type { LlmObservation } from "@cogni/sandbox-core/LlmObservation"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import type { MessagePort } from "node:worker_threads"
import * as AuditChain from "../audit/AuditChain.ts"
import * as AuditFile from "../audit/AuditFile.ts"
import * as CallbackFibers from "../CallbackFibers.ts"
import * as CallDrains from "../gateway/CallDrains.ts"
import * as GatewayRun from "../gateway/GatewayRun.ts"
import * as GatewayServer from "../gateway/GatewayServer.ts"
import type { ProcessorMeter } from "../gateway/ProcessorMeter.ts"
import * as RequestRoutes from "../gateway/RequestRoutes.ts"
import * as RunConnections from "../gateway/RunConnections.ts"
import * as RunGate from "../gateway/RunGate.ts"
import * as RunShare from "../gateway/RunShare.ts"
import * as SocketListener from "../gateway/SocketListener.ts"
import * as ToolPort from "../gateway/ToolPort.ts"
import * as TrafficCount from "../gateway/TrafficCount.ts"
import * as UpstreamKeys from "../gateway/UpstreamKeys.ts"
import * as RunPackages from "../packages/RunPackages.ts"
import * as Budget from "../policy/Budget.ts"
import * as SubagentShare from "../policy/SubagentShare.ts"
import * as Questions from "../Questions.ts"
import { defaults } from "./GatewayLimits.ts"
import type { ShardCounters } from "./ShardCounters.ts"
import type { FromRun, RunStart, RunTraffic, ShardConfig, ToRun } from "./ShardMessage.ts"

/** Resources that the runs of a shard share. */
export interface Shard {
  readonly config: ShardConfig
  readonly counters: ShardCounters
  readonly slot: number
  readonly meter: ProcessorMeter
  readonly shared: GatewayRun.Shared
  /** Live runs of all shards. */
  readonly runs: () => number
  /** Starts a fiber that may outlive a run, and ends with the thread. */
  readonly fork: CallbackFibers.CallbackFibers["fork"]
}

/** How long an agent's requests may outlive it before they are cut off. */
const lingerMillis = 200

/** How long the main thread may take to answer about a key, in addition to the time of its source. */
const keyGraceSecondsMax = 20

const noAnswer: UpstreamKeys.KeyTold = {
  _tag: "Unavailable",
  detail: "the host did not answer in time",
  isRetryable: true
}

/** Serves a run until the main thread ends it. */
export const serve = Effect.fnUntraced(function* (
  shard: Shard,
  start: RunStart,
  port: MessagePort
): Effect.fn.Return<void, never, Scope.Scope> {
  yield* Effect.addFinalizer(() => Effect.sync(() => port.close()))
  const tell = (message: FromRun) => port.postMessage(message)
  const tools = ToolPort.make({
    send: (serial, request) => tell({ type: "tool", serial, request }),
    gone: (serial) => tell({ type: "tool_gone", serial })
  })
  const keys = Questions.make<UpstreamKeys.KeyTold>()
  const askKey: UpstreamKeys.KeyAsker = (ask) =>
    Effect.timeoutOrElse(
      keys.ask((serial) => tell({ type: "key", serial, ask })),
      {
        duration: Duration.seconds(shard.config.keyWaitSecondsMax + keyGraceSecondsMax),
        orElse: () => Effect.succeed(noAnswer)
      }
    )
  const over = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<OpenRun, NotOpened>()

  const hear = (message: ToRun): Effect.Effect<void> => {
    switch (message.type) {
      case "finish":
        return Effect.asVoid(Deferred.succeed(over, undefined))
      case "tool_answer":
        return Effect.sync(() => tools.answered(message.serial, message.answer))
      case "key_told":
        return Effect.sync(() => keys.answered(message.serial, message.told))
      case "traffic":
        return Deferred.await(opened).pipe(
          Effect.match({ onSuccess: trafficOf, onFailure: ({ auditHead }) => nothing(auditHead) }),
          Effect.map((traffic) => tell({ type: "traffic", serial: message.serial, traffic }))
        )
      case "tool_called":
        return ifOpened(({ run }) => run.toolCalled(message.fact))
      case "approval":
        return ifOpened(({ run }) => run.approval(message.fact))
      case "keyed":
        return ifOpened(({ run }) => run.keyed(message.fact))
      case "sighted":
        return ifOpened(({ run }) => run.suspect(message.sighting))
    }
  }
  const ifOpened = (use: (run: OpenRun) => void) => Effect.ignore(Effect.map(Deferred.await(opened), use))
  port.on("message", (message: ToRun) => shard.fork(hear(message)))
  // The main thread has dropped the run without a message.
  port.once("close", () => Deferred.doneUnsafe(over, Effect.void))

  const traffic = yield* Effect.gen(function* () {
    const run = yield* open(shard, start, { askKey, tell, tools })
    yield* Deferred.succeed(opened, run)
    tell({ type: "opened" })
    yield* Deferred.await(over)
    return yield* finish(run)
  }).pipe(
    Effect.scoped,
    Effect.catchTag("NotOpened", (error) =>
      Effect.gen(function* () {
        yield* Deferred.fail(opened, error)
        tell({ type: "failed", problem: error.problem })
        yield* Deferred.await(over)
        return nothing(error.auditHead)
      })
    )
  )
  tell({ type: "finished", traffic })
}, Effect.scoped)

/** Ways to the main thread. */
interface Main {
  readonly askKey: UpstreamKeys.KeyAsker
  readonly tell: (message: FromRun) => void
  readonly tools: ToolPort.ToolPort
}

interface OpenRun {
  readonly audit: AuditFile.AuditFile
  /** Its socket, and the one for packages alone if it has one. */
  readonly doors: ReadonlyArray<{
    readonly listener: SocketListener.SocketListener
    readonly server: ReturnType<typeof GatewayServer.make>
  }>
  readonly requests: CallbackFibers.CallbackFibers
  readonly run: GatewayRun.GatewayRun
}

/** The run cannot be served. Its audit is closed, if it has one. */
class NotOpened extends Data.TaggedError("NotOpened")<{
  readonly problem: AuditFile.AuditProblem
  readonly auditHead: AuditHead
}> {}

const open = Effect.fnUntraced(function* (
  shard: Shard,
  start: RunStart,
  { askKey, tell, tools }: Main
): Effect.fn.Return<OpenRun, NotOpened, Scope.Scope> {
  const { config, meter } = shard
  const gate = gateOf(shard, start)
  // Closing the scope returns both shares as a whole, however the run's requests end.
  const { connectionsMax, connectionsTotalMax, heldBytesMax: totalMax, requestBytesMax: wholeMax } = config
  const connectionLimits = { totalMax: connectionsTotalMax, wholeMax: connectionsMax, runMax: connectionsMax }
  const connectionShare = yield* shareOf(shard, connectionLimits, "connections", 1)
  const bytesShare = yield* shareOf(shard, { totalMax, wholeMax }, "heldKiB", 1024)
  const audit = yield* AuditFile.open({
    parent: start.auditParent,
    runId: start.runId,
    bytesMax: config.auditBytesMax,
    onFailure: (problem) => tell({ type: "failed", problem })
  }).pipe(
    Effect.mapError(
      ({ detail, remedy }) =>
        new NotOpened({ problem: { detail, remedy }, auditHead: AuditChain.genesis(start.runId) })
    )
  )
  yield* audit.append(start.opened)
  const connections = yield* Effect.acquireRelease(Effect.sync(RunConnections.make), ({ forgetPause }) =>
    Effect.sync(forgetPause)
  )
  const observe = (observation: LlmObservation) => tell({ type: "observed", observation })
  const metered = GatewayServer.meteredBy(gate, connections)
  const run = GatewayRun.make({
    shared: start.hasOwnKey ? { ...shard.shared, keys: UpstreamKeys.make("fixed", undefined) } : shard.shared,
    runId: start.runId,
    llm: start.llm,
    payer: start.payer,
    ...(start.packages.length === 0 || config.packages === undefined
      ? {}
      : { packages: RunPackages.make(start.packages, config.packages) }),
    ledger: ledgerOf(config, start),
    drains: CallDrains.make(config),
    audit,
    gate,
    canaries: start.canaries,
    traceparent: start.traceparent,
    reading: {
      share: bytesShare,
      progressSecondsMax: config.bodyProgressSecondsMax,
      bytesPerSecondMin: config.bodyBytesPerSecondMin,
      isPaused: connections.isPaused,
      onPiece: () => meter.note(metered)
    },
    askKey,
    suspected: (evidence) => observe({ _tag: "ExfiltrationSuspected", evidence }),
    exhausted: (exhaustion) => observe({ _tag: "BudgetExhausted", exhaustion }),
    shareSpent: (exhaustion) => observe({ _tag: "SubagentShareSpent", exhaustion }),
    troubled: (problem) => tell({ type: "troubled", problem })
  })
  const requests = yield* CallbackFibers.make
  const listen = Effect.fnUntraced(function* (socketPath: string, serves: RequestRoutes.Serves) {
    const routes = { connections, run, tools: tools.handle, serves }
    const server = GatewayServer.make({
      requests,
      serve: (request, response) => RequestRoutes.serve(routes, request, response),
      refuse: run.refuse,
      gate,
      connections,
      meter,
      metered,
      share: connectionShare,
      headerSecondsMax: config.headerSecondsMax,
      requestSecondsMax: config.requestSecondsMax,
      onCrowd: (millis) => listener.pause(millis)
    })
    const listener: SocketListener.SocketListener = yield* SocketListener.listen(
      server,
      socketPath,
      shard.fork
    ).pipe(Effect.catchTag("ListenFailed", ({ detail }) => notListening(audit, detail)))
    return { listener, server }
  })
  const { packageSocketPath, socketPath } = start
  const doors = [
    yield* listen(socketPath, { model: start.llm !== undefined, packages: packageSocketPath === undefined }),
    ...(packageSocketPath === undefined
      ? []
      : [yield* listen(packageSocketPath, { model: false, packages: true })])
  ]
  return { audit, doors, requests, run }
})

const notListening = Effect.fnUntraced(function* (audit: AuditFile.AuditFile, detail: string) {
  const failure = `the socket cannot be created: ${detail}`
  yield* audit.close({ ...noTotals, failure })
  const remedy = "Make the run's directory writable, and make sure that its disk has free space"
  return yield* new NotOpened({ problem: { detail: failure, remedy }, auditHead: audit.head() })
})

const ledgerOf = (
  config: ShardConfig,
  { account, llm, runtimeSecondsMax }: RunStart
): SubagentShare.RunLedger => {
  const { prices } = config
  const ledger = Budget.make(llm?.budget, { prices, defaults: config, account: accountOf(account) })
  return SubagentShare.make(ledger, { budget: llm?.budget, runtimeSecondsMax, prices })
}

const accountOf = (account: RunStart["account"]): Budget.AccountRule | undefined => {
  if (account === undefined) return undefined
  const { pace, reservesCost } = account
  if (pace === undefined) return { reservesCost, take: () => 0, callsPerMinuteMax: () => Infinity }
  const { limit, take } = CallPace.over(pace)
  return { reservesCost, take: () => take(Date.now()), callsPerMinuteMax: limit }
}

const gateOf = ({ config }: Shard, { llm }: RunStart): RunGate.RunGate => {
  const requestsPerSecondMax = Math.max(config.requestsPerSecondMax, llm?.budget?.requestsPerSecondMax ?? 0)
  return RunGate.make({
    requestsPerSecondMax,
    connectionsPerSecondMax: Math.max(config.connectionsPerSecondMax, requestsPerSecondMax),
    connectionsMax: config.connectionsMax,
    processorShareMax: config.processorShareMax
  })
}

const shareOf = (shard: Shard, limits: RunShare.Limits, field: "heldKiB" | "connections", unit: number) =>
  Effect.acquireRelease(
    Effect.sync(() => RunShare.make({ ...shard, limits, field, unit })),
    ({ release }) => Effect.sync(release)
  )

/**
 * Ends a run: refuses connections, waits briefly for requests and a little longer for the answers of open calls, cuts
 * off the rest, and writes the last audit entry.
 */
const finish = Effect.fnUntraced(function* (opened: OpenRun): Effect.fn.Return<RunTraffic> {
  const { audit, doors, requests, run } = opened
  for (const { listener, server } of doors) {
    yield* listener.stop
    server.closeIdleConnections()
  }
  yield* Effect.timeoutOption(requests.awaitEmpty, Duration.millis(lingerMillis))
  yield* run.drains.finish(() => {
    for (const { server } of doors) server.closeAllConnections()
  })
  yield* requests.interrupt
  // Calls still in progress will not report their end.
  run.ledger.endAll()
  const { calls: _, ...totals } = run.traffic.read()
  yield* audit.close({ usage: run.ledger.total(), ...totals })
  return trafficOf(opened)
})

const trafficOf = ({ audit, run }: OpenRun): RunTraffic => ({
  ...run.traffic.read(),
  usage: run.ledger.total(),
  exhausted: run.ledger.exhausted(),
  subagentsExhausted: run.shareSpent(),
  auditHead: audit.head()
})

/** Traffic of a run that was never served. */
const { calls: _, ...noTraffic } = TrafficCount.make().read()
const noTotals = { ...noTraffic, usage: Budget.make(undefined, { defaults }).total() }
const nothing = (auditHead: AuditHead): RunTraffic => ({ ...noTotals, calls: [], auditHead })
