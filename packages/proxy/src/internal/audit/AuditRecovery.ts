/**
 * Completes the audit of a run whose shard was lost, from what the audit itself says: a call is written down before it
 * happens, so every call that was open is known. Those are charged as reserved, and the last entry says what happened.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { createReadStream } from "node:fs"
import * as path from "node:path"
import type { AuditHead, Exhaustion, LlmCall, LlmOutcome } from "@cogni/sandbox-core/RunResult"
import type { AuditLine } from "../../AuditEntry.ts"
import * as Budget from "../policy/Budget.ts"
import * as AuditChain from "./AuditChain.ts"
import * as AuditFile from "./AuditFile.ts"
import * as CallAnswer from "../gateway/CallAnswer.ts"
import * as GatewayRun from "../gateway/GatewayRun.ts"
import type { ProcessorMeter } from "../gateway/ProcessorMeter.ts"
import type { FromRecovery, RunLost, RunTraffic, ShardConfig } from "../shards/ShardMessage.ts"

type Line<Type extends AuditLine["type"]> = Extract<AuditLine, { readonly type: Type }>

/** Never rejects. */
export const recover = async (
  config: ShardConfig,
  lost: RunLost,
  { exempt }: Pick<ProcessorMeter, "exempt">
): Promise<FromRecovery> => {
  try {
    return { type: "recovered", traffic: await complete(config, lost, exempt) }
  } catch (thrown) {
    return {
      type: "failed",
      problem: {
        detail: `the run's audit could not be completed: ${messageOf(thrown)}`,
        remedy: "Keep the run's directory: its audit holds every call up to where the thread was lost"
      }
    }
  }
}

const complete = async (
  config: ShardConfig,
  lost: RunLost,
  exempt: ProcessorMeter["exempt"]
): Promise<RunTraffic> => {
  const read = await replay(config, lost, exempt)
  let problem: string | undefined
  const audit = await AuditFile.open({
    parent: lost.auditParent,
    runId: lost.runId,
    bytesMax: config.auditBytesMax,
    resume: { head: read.head, bytes: read.bytes },
    onFailure: ({ detail }) => {
      problem = detail
    }
  })
  try {
    if (read.closed === undefined) {
      for (const { ticket, usage } of read.ledger.endAll()) {
        const line = read.lineOf(ticket)
        if (line === undefined) continue
        const call = { ...endOf(line), ...(usage === undefined ? {} : { usage }) }
        read.add(callOf(line, call))
        void audit.append({ type: "call.ended", ...call })
      }
      const { callsTotal, refusedTotal, toolCallsTotal } = read.counts
      await audit.close({
        usage: read.ledger.total(),
        callsTotal,
        toolCallsTotal,
        refusedTotal,
        failure: lost.reason
      })
    }
  } finally {
    await audit.release()
  }
  if (problem !== undefined) throw new Error(problem)
  return {
    ...read.counts,
    calls: read.calls,
    usage: read.closed?.usage ?? read.ledger.total(),
    ...(read.exhausted() === undefined ? {} : { exhausted: read.exhausted() }),
    auditHead: audit.head()
  }
}

interface Open {
  readonly line: Line<"call.started">
  readonly ticket: Budget.Ticket
}

/** Everything that was written, held against a ledger without limits: it has passed already. */
const replay = async (
  config: ShardConfig,
  { auditParent, runId }: RunLost,
  exempt: ProcessorMeter["exempt"]
) => {
  const ledger = Budget.make(undefined, {
    ...(config.prices === undefined ? {} : { prices: config.prices }),
    defaults: { concurrentCallsMax: Number.POSITIVE_INFINITY, requestsPerSecondMax: 1 }
  })
  const open = new Map<string, Open>()
  const calls: Array<LlmCall> = []
  const counts = { callsTotal: 0, refusedTotal: 0, toolCallsTotal: 0 }
  let exhausted: Exhaustion | undefined
  /** As the run itself closed it. */
  let closed: Line<"run.closed"> | undefined
  const add = (call: LlmCall) => {
    counts.callsTotal += 1
    if (calls.length < GatewayRun.callsKeptMax) calls.push(call)
  }
  const addListed = (line: Line<"request.refused" | "request.answered">, outcome: LlmOutcome) => {
    const { at, call, method = "", path: target = "", requestId = "", status } = line
    if (call === undefined) return
    add({ at, requestId, method, path: target, status, ...call, completed: true, outcome })
  }
  const take = (line: AuditLine) => {
    switch (line.type) {
      case "call.started": {
        const ticket = ledger.begin({
          model: line.model,
          requestBytes: line.sentBytes,
          inputTokensMax: line.inputTokensMax ?? line.sentBytes,
          ...(line.cachesForHour === undefined ? {} : { cachesForHour: true }),
          ...(line.outputTokensMax === undefined ? {} : { outputTokensMax: line.outputTokensMax }),
          ...(line.api === "count_tokens" ? { free: true } : {})
        })
        if (!("exhaustion" in ticket)) open.set(line.callId, { line, ticket })
        return
      }
      case "call.ended": {
        const began = open.get(line.callId)
        if (began === undefined) return
        open.delete(line.callId)
        ledger.end(began.ticket, {
          // What was estimated then is estimated again; what was told stays.
          ...(line.usage === undefined
            ? {}
            : { usage: Budget.toldOf(began.ticket, line.usage, config.prices) }),
          responseBytes: line.responseBytes,
          // A call that was charged for its model has both figures; a cost alone is what a refusal came to.
          mayHaveRun: line.usage?.outputTokens !== undefined
        })
        return add(callOf(began.line, line))
      }
      case "request.refused":
        counts.refusedTotal += 1 + (line.suppressed ?? 0)
        counts.callsTotal += line.suppressedCalls ?? 0
        return addListed(line, CallAnswer.outcomeOfRefusal(line.code))
      case "request.answered":
        return addListed(line, "answered")
      case "tool.called":
        counts.toolCallsTotal += 1
        return
      case "budget.exhausted":
        exhausted ??= line.exhaustion
        return
      case "run.closed":
        closed = line
    }
  }
  const { bytes, head } = await readLines(
    path.join(auditParent, AuditChain.relativePath),
    runId,
    take,
    exempt
  )
  const lineOf = (of: Budget.Ticket) => [...open.values()].find(({ ticket }) => ticket === of)?.line
  return { ledger, lineOf, calls, counts, add, exhausted: () => exhausted, closed, head, bytes }
}

const lineFeed = 10

/** Whole lines that follow from each other; what comes after the first that does not is not ours. */
const readLines = async (
  file: string,
  runId: string,
  take: (line: AuditLine) => void,
  exempt: ProcessorMeter["exempt"]
) => {
  let head: AuditHead = AuditChain.genesis(runId)
  let bytes = 0
  let rest = Buffer.alloc(0)
  const push = (piece: Buffer) => {
    rest = Buffer.concat([rest, piece])
    let from = 0
    for (let at = rest.indexOf(lineFeed); at !== -1; at = rest.indexOf(lineFeed, from)) {
      const line = JSON.parse(rest.toString("utf8", from, at)) as AuditLine
      if (line.prev !== head.hash)
        throw new TypeError(`line ${head.entries + 1} does not follow from the one before`)
      head = { entries: line.seq, hash: line.hash }
      bytes += at + 1 - from
      from = at + 1
      take(line)
    }
    rest = rest.subarray(from)
    if (rest.byteLength > AuditChain.lineBytesMax) throw new TypeError("a line is too long")
  }
  // The runs that this thread serves do not pay for another's end.
  for await (const piece of createReadStream(file)) exempt(() => push(piece as Buffer))
  return { head, bytes }
}

const endOf = ({ api, at, callId, requestId }: Line<"call.started">) =>
  ({
    requestId,
    callId,
    status: CallAnswer.statusGone,
    outcome: "run_ended",
    responseBytes: 0,
    responseDigest: AuditChain.sha256(""),
    durationMs: Math.max(0, Date.now() - Date.parse(at)),
    ...(api === "count_tokens" ? {} : { usageMissing: true as const }),
    detail: "the gateway's thread that served this call was lost before the call ended"
  }) as const

const callOf = (
  { at, callId, method, model, path: target, requestBytes, requestId }: Line<"call.started">,
  end: Pick<Line<"call.ended">, "status" | "outcome" | "responseBytes" | "durationMs" | "usage">
): LlmCall => ({
  at,
  requestId,
  method,
  path: target,
  status: end.status,
  callId,
  requestBytes,
  responseBytes: end.responseBytes,
  durationMs: end.durationMs,
  completed: end.outcome === "completed",
  outcome: end.outcome,
  model,
  ...(end.usage === undefined ? {} : { usage: end.usage })
})
