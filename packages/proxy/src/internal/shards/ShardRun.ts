/** One run in its shard, from the audit's first entry to its last. */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import type { MessagePort } from "node:worker_threads"
import * as AuditChain from "../audit/AuditChain.ts"
import * as AuditFile from "../audit/AuditFile.ts"
import * as GatewayServer from "../gateway/GatewayServer.ts"
import type * as GatewayRun from "../gateway/GatewayRun.ts"
import type * as ProcessorMeter from "../gateway/ProcessorMeter.ts"
import * as RunGate from "../gateway/RunGate.ts"
import type { RunHandler } from "../gateway/RunHandler.ts"
import * as RunShare from "../gateway/RunShare.ts"
import type { ShardCounters } from "./ShardCounters.ts"
import type { FromRun, RunStart, RunTraffic, ShardConfig, ToRun } from "./ShardMessage.ts"
import * as SocketListener from "../gateway/SocketListener.ts"
import * as ToolPort from "../gateway/ToolPort.ts"

/** What the runs of a shard have in common. */
export interface Shard {
  readonly config: ShardConfig
  readonly counters: ShardCounters
  readonly slot: number
  readonly meter: ProcessorMeter.ProcessorMeter
  /** Runs of all shards that live now. */
  readonly runs: () => number
  readonly isAlone: () => boolean
}

/** How long calls that have their answer may take to be written down. */
const settleMillisMax = 2000
const settleStepMillis = 5
/** How long an agent's connections may outlive it, before they are cut off. */
const lingerMillis = 200

/** Serve a run until the main thread says that it is over. Settles then; never rejects. */
export const serve = async (shard: Shard, start: RunStart, port: MessagePort): Promise<void> => {
  const tell = (message: FromRun) => port.postMessage(message)
  const tools = ToolPort.make((serial, request) => tell({ type: "tool", serial, request }))
  const { promise: over, resolve: end } = Promise.withResolvers<void>()
  const opening = open(shard, start, tools, tell)
  // Where it cannot be opened there is nobody to ask; a rejection that nobody hears would end the thread.
  const handler = opening.then(({ handler }) => handler).catch(() => undefined)
  const auditHead = opening.then(
    ({ audit }) => audit.head(),
    (thrown: unknown) => headOf(start, thrown)
  )
  port.on("message", (message: ToRun) => {
    switch (message.type) {
      case "finish":
        return end()
      case "tool_answer":
        return tools.answered(message.serial, message.answer)
      case "traffic":
        return void Promise.all([handler, auditHead]).then(([opened, head]) =>
          tell({
            type: "traffic",
            serial: message.serial,
            traffic: opened === undefined ? nothing(head) : opened.traffic()
          })
        )
      case "tool_called":
        return void handler.then((opened) => {
          if (opened === undefined) return undefined
          opened.run.counts.toolCallsTotal += 1
          return opened.run.append(message.fact)
        })
      case "sighted":
        return void handler.then((opened) => opened?.run.suspect(message.sighting))
    }
  })
  // The main thread has let go of the run without a word.
  port.once("close", end)
  try {
    const opened = await opening
    tell({ type: "opened" })
    await over
    tell({ type: "finished", traffic: await finish(opened, tools) })
  } catch (thrown) {
    tell({ type: "failed", problem: problemOf(thrown) })
    await over
    tell({ type: "finished", traffic: nothing(await auditHead) })
  } finally {
    port.close()
  }
}

interface Opened {
  readonly audit: AuditFile.AuditFile
  readonly door: GatewayServer.GatewayServer
  readonly listener: SocketListener.SocketListener
  readonly handler: Promise<RunHandler>
  readonly release: () => void
}

const open = async (
  shard: Shard,
  start: RunStart,
  tools: ToolPort.ToolPort,
  tell: (message: FromRun) => void
): Promise<Opened> => {
  const audit = await AuditFile.open({
    parent: start.auditParent,
    runId: start.runId,
    bytesMax: shard.config.auditBytesMax,
    onFailure: (problem) => tell({ type: "failed", problem })
  })
  await audit.append(start.opened)
  let listener: SocketListener.SocketListener | undefined
  const { gate, handler, release, share } = made(shard, start, audit, tools, tell, () => door)
  const door: GatewayServer.GatewayServer = GatewayServer.make({
    handler,
    gate,
    meter: shard.meter,
    share,
    headerSecondsMax: shard.config.headerSecondsMax,
    requestSecondsMax: shard.config.requestSecondsMax,
    onCrowd: (millis) => listener?.pause(millis)
  })
  try {
    listener = await SocketListener.listen(door.server, start.socketPath)
    return { audit, door, listener, handler, release }
  } catch (thrown) {
    const problem = problemOf(thrown)
    await audit.close({ ...noTotals, failure: problem.detail })
    await audit.release()
    throw new NotOpened(problem, audit.head())
  }
}

/** The run's bounds, and what decides about its requests. */
const made = (
  shard: Shard,
  start: RunStart,
  audit: AuditFile.AuditFile,
  tools: ToolPort.ToolPort,
  tell: (message: FromRun) => void,
  door: () => GatewayServer.GatewayServer
) => {
  const { config, meter } = shard
  const share = (limits: RunShare.Limits, field: "heldKiB" | "connections", unit: number) =>
    RunShare.make({ ...shard, limits, field, unit })
  const requestsPerSecondMax = Math.max(
    config.requestsPerSecondMax,
    start.llm.budget?.requestsPerSecondMax ?? 0
  )
  const gate = RunGate.make({
    requestsPerSecondMax,
    connectionsPerSecondMax: Math.max(config.connectionsPerSecondMax, requestsPerSecondMax),
    connectionsMax: config.connections.wholeMax,
    processorShareMax: config.processorShareMax
  })
  const held = share(config.heldBytes, "heldKiB", 1024)
  const handler = import("../gateway/RunHandler.ts").then((RunHandler) =>
    RunHandler.make({
      config,
      shared: (shared ??= RunHandler.makeShared(config, shard.isAlone)),
      start,
      audit,
      gate,
      reading: {
        share: held,
        progressSecondsMax: config.bodyProgressSecondsMax,
        bytesPerSecondMin: config.bodyBytesPerSecondMin,
        isPaused: () => door().connections.isPaused(),
        onPiece: () => meter.note(door().metered)
      },
      tools: tools.handle,
      slow: (request, millis) => door().connections.pause(request.socket, millis),
      tell
    })
  )
  const connections = share(config.connections, "connections", 1)
  // What was held goes back in whole when the run ends, however its requests do.
  const release = () => [held, connections].forEach((one) => one.release())
  return { gate, handler, share: connections, release }
}

/** Of this thread. */
let shared: GatewayRun.Shared | undefined

const idle = async ({ run }: RunHandler, millisMax: number): Promise<void> => {
  const until = performance.now() + millisMax
  while (run.counts.active > 0 && performance.now() < until)
    await new Promise((resolve) => setTimeout(resolve, settleStepMillis))
}

/** No new request, then none at all: what has its answer may end, the rest is cut off; then the last entry. */
const finish = async ({ audit, door, handler, listener, release }: Opened, tools: ToolPort.ToolPort) => {
  const loaded = await handler
  const { run } = loaded
  listener.stop()
  door.server.closeIdleConnections()
  await idle(loaded, lingerMillis)
  run.closing = true
  tools.close()
  door.server.closeAllConnections()
  run.shared.inspector.forget(run.runId)
  await idle(loaded, settleMillisMax)
  // No end will be heard of what is still under way.
  run.ledger.endAll()
  const { callsTotal, refusedTotal, toolCallsTotal } = run.counts
  await audit.close({ usage: run.ledger.total(), callsTotal, toolCallsTotal, refusedTotal })
  const traffic = loaded.traffic()
  await listener.close()
  await audit.release()
  release()
  door.connections.forgetPause()
  return traffic
}

const noTotals = {
  callsTotal: 0,
  refusedTotal: 0,
  toolCallsTotal: 0,
  usage: {
    calls: 0,
    inputTokens: 0,
    outputTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    callsWithoutUsage: 0,
    callsWithoutCost: 0
  }
} as const

/** Of a run that was never served. */
const nothing = (auditHead: AuditHead): RunTraffic => ({ ...noTotals, calls: [], auditHead })

/** The audit is there, begun and closed; the socket is not. */
class NotOpened extends AuditFile.AuditFailed {
  readonly auditHead: AuditHead
  constructor(problem: AuditFile.AuditProblem, auditHead: AuditHead) {
    super(problem)
    this.auditHead = auditHead
  }
}

const headOf = ({ runId }: RunStart, thrown: unknown): AuditHead =>
  thrown instanceof NotOpened ? thrown.auditHead : AuditChain.genesis(runId)

const problemOf = (thrown: unknown): AuditFile.AuditProblem =>
  thrown instanceof AuditFile.AuditFailed
    ? thrown.problem
    : {
        detail: `the socket cannot be made: ${messageOf(thrown)}`,
        remedy: "Make the run's directory writable, and see that its disk has space"
      }
