/**
 * Completes the audit of a run whose shard was lost, from the audit itself. A call is recorded before it begins, so all
 * open calls are known. They are charged as reserved, and the last entry states what happened.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import { createReadStream } from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Struct from "effect/Struct"
import type { AuditHead, Exhaustion, LlmCall, LlmOutcome } from "@cogni/sandbox-core/RunResult"
import type { AuditLine } from "../../AuditEntry.ts"
import { makeRows } from "../ByteRows.ts"
import * as CallAnswer from "../gateway/CallAnswer.ts"
import type { ProcessorMeter } from "../gateway/ProcessorMeter.ts"
import * as RequestRefused from "../gateway/RequestRefused.ts"
import * as TrafficCount from "../gateway/TrafficCount.ts"
import * as Budget from "../policy/Budget.ts"
import type { RunLost, RunTraffic, ShardConfig } from "../shards/ShardMessage.ts"
import * as AuditChain from "./AuditChain.ts"
import * as AuditFile from "./AuditFile.ts"

type Line<Type extends AuditLine["type"]> = Extract<AuditLine, { readonly type: Type }>

const notCompleted = (cause: string) =>
  new AuditFile.AuditFailed({
    detail: `the run's audit could not be completed: ${cause}`,
    remedy: "Keep the run's directory: its audit has every call until the thread was lost"
  })

export const recover = Effect.fnUntraced(function* (
  config: ShardConfig,
  lost: RunLost,
  { exempt }: Pick<ProcessorMeter, "exempt">
): Effect.fn.Return<RunTraffic, AuditFile.AuditFailed, Scope.Scope> {
  const read = yield* attempt(() => replay(config, lost, exempt), notCompleted)
  let problem: string | undefined
  const audit = yield* AuditFile.open({
    parent: lost.auditParent,
    runId: lost.runId,
    bytesMax: config.auditBytesMax,
    resume: { head: read.head, bytes: read.bytes },
    onFailure: ({ detail }) => {
      problem = detail
    }
  }).pipe(Effect.mapError(({ detail }) => notCompleted(detail)))
  if (read.closed === undefined) {
    for (const { ticket, usage } of read.ledger.endAll()) {
      const line = read.lineOf(ticket)
      if (line === undefined) continue
      const call = { ...endOf(line), ...(usage === undefined ? {} : { usage }) }
      read.traffic.call(callOf(line, call))
      audit.note({ type: "call.ended", ...call })
    }
    const { calls: _, ...totals } = read.traffic.read()
    yield* audit.close({ usage: read.ledger.total(), ...totals, failure: lost.reason })
  }
  yield* audit.settled
  if (problem !== undefined) return yield* notCompleted(problem)
  return {
    ...read.traffic.read(),
    usage: read.closed?.usage ?? read.ledger.total(),
    exhausted: read.exhausted(),
    auditHead: audit.head()
  }
}, Effect.scoped)

interface Open {
  readonly line: Line<"call.started">
  readonly ticket: Budget.Ticket
}

/** Replays all entries on a ledger without limits, because the calls were already allowed. */
const replay = async (
  config: ShardConfig,
  { auditParent, runId }: RunLost,
  exempt: ProcessorMeter["exempt"]
) => {
  const ledger = Budget.make(undefined, {
    prices: config.prices,
    defaults: { concurrentCallsMax: Number.POSITIVE_INFINITY, requestsPerSecondMax: 1 }
  })
  const open = new Map<string, Open>()
  const traffic = TrafficCount.make()
  let exhausted: Exhaustion | undefined
  /** The last entry, if the run itself closed its audit. */
  let closed: Line<"run.closed"> | undefined
  const addListed = (line: Line<"request.refused" | "request.answered">, outcome: LlmOutcome) => {
    const { at, call, method = "", path: target = "", requestId = "", status } = line
    if (call === undefined) return
    traffic.call({ at, requestId, method, path: target, status, ...call, completed: true, outcome })
  }
  const take = (line: AuditLine) => {
    switch (line.type) {
      case "call.started": {
        const ticket = ledger.begin({
          model: line.model,
          requestBytes: line.sentBytes,
          inputTokensMax: line.inputTokensMax ?? line.sentBytes,
          cachesForHour: line.cachesForHour,
          outputTokensMax: line.outputTokensMax,
          free: line.api === "count_tokens"
        })
        if (!("exhaustion" in ticket)) open.set(line.callId, { line, ticket })
        return
      }
      case "call.ended": {
        const began = open.get(line.callId)
        if (began === undefined) return
        open.delete(line.callId)
        ledger.end(began.ticket, {
          // Estimated figures are estimated again. Reported figures are kept.
          usage: line.usage && Budget.toldOf(began.ticket, line.usage, config.prices),
          responseBytes: line.responseBytes,
          // A call that was charged for its model has both figures. A cost alone is that of a refusal.
          mayHaveRun: line.usage?.outputTokens !== undefined
        })
        return traffic.call(callOf(began.line, line))
      }
      case "request.refused":
        traffic.add({ refusedTotal: 1 + (line.suppressed ?? 0), callsTotal: line.suppressedCalls ?? 0 })
        return addListed(line, RequestRefused.outcomeOf(line.code))
      case "request.answered":
        return addListed(line, "answered")
      case "tool.called":
        return traffic.add({ toolCallsTotal: 1 })
      case "budget.exhausted":
        exhausted ??= line.exhaustion
        return
      case "run.closed":
        closed = line
    }
  }
  const file = path.join(auditParent, AuditChain.relativePath)
  const { bytes, head } = await readLines(file, runId, take, exempt)
  const lineOf = (of: Budget.Ticket) => [...open.values()].find(({ ticket }) => ticket === of)?.line
  return { ledger, lineOf, traffic, exhausted: () => exhausted, closed, head, bytes }
}

/** Reads the complete lines, and throws if one does not follow from the previous one. */
const readLines = async (
  file: string,
  runId: string,
  take: (line: AuditLine) => void,
  exempt: ProcessorMeter["exempt"]
) => {
  let head: AuditHead = AuditChain.genesis(runId)
  let bytes = 0
  const decoder = new TextDecoder()
  const tooLong = () => new TypeError("a line is too long")
  const rows = makeRows(AuditChain.lineBytesMax, ({ bytes: row, offset }) => {
    if (row === undefined) throw tooLong()
    const line = JSON.parse(decoder.decode(row)) as AuditLine
    if (line.prev !== head.hash)
      throw new TypeError(`line ${head.entries + 1} does not follow from the previous line`)
    head = { entries: line.seq, hash: line.hash }
    bytes = offset + row.byteLength + 1
    take(line)
  })
  // The runs that this thread serves are not charged for the processor time of this recovery.
  for await (const piece of createReadStream(file)) exempt(() => rows.push(piece as Buffer))
  if (rows.rest().bytes > AuditChain.lineBytesMax) throw tooLong()
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
  line: Line<"call.started">,
  end: Pick<Line<"call.ended">, "status" | "outcome" | "responseBytes" | "durationMs" | "usage">
): LlmCall => ({
  ...Struct.pick(line, ["at", "requestId", "callId", "method", "path", "model", "requestBytes"]),
  ...Struct.pick(end, ["status", "outcome", "responseBytes", "durationMs", "usage"]),
  completed: end.outcome === "completed"
})
