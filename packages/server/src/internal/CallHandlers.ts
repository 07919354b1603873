/**
 * Handlers of what a run called: its models, with the cost of each call, and its tools.
 *
 * Calls of a run that has ended are from its record, those of one under way from its audit on this host.
 */
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmCall } from "@cogni/sandbox-core/RunFigures"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { Effect, Option, Semaphore } from "effect"
import type { AuditHandlers } from "./AuditHandlers.ts"
import { type CallView, nameCharsMax, type ToolCall, toolCallsMax } from "./CallView.ts"
import * as Problem from "./Problem.ts"
import type { RunHandlers } from "./RunHandlers.ts"

/** Calls of a page, unless the query names another number. */
const listedDefault = 50

/** Runs whose reported tool calls stay in memory: each of them at most the size of a journal. */
const readRunsMax = 8

/** Size of one reading of a journal: a longer one would hold up the runs of this process. */
const journalPieceBytes = 1024 * 1024

/** The part of a journal that was read. */
interface Reported {
  readonly calls: Map<string, Extract<ToolCall, { readonly source: "agent" }>>
  readonly turn: Semaphore.Semaphore
  total: number
  /** Number of the last entry that was read. */
  after: number
}

const cut = (text: string) => text.slice(0, nameCharsMax)

const ofRecord = (call: LlmCall): CallView => ({
  at: call.at,
  requestId: call.requestId,
  callId: call.callId,
  method: cut(call.method),
  path: cut(call.path),
  status: call.status,
  outcome: call.outcome,
  model: call.model,
  requestBytes: call.requestBytes,
  responseBytes: call.responseBytes,
  durationMs: call.durationMs,
  usage: call.usage
})

const costOf = ({ costUsd, currency, priceSource, reason, state }: LedgerEntry): CallView["cost"] => ({
  currency,
  costUsd,
  state,
  priceSource,
  reason
})

type Found = Pick<Effect.Success<ReturnType<RunHandlers["lookUp"]>>, "here" | "record">

const none = { calls: [], total: 0 }

const noted = (isElsewhere: boolean) => (isElsewhere ? { isElsewhere: true as const } : {})

/** Returns whether another host has the audit of a run of which this one has none: there is one, or there will be. */
const isOfAnother = ({ here, record }: Found & { readonly record: RunRecord }): boolean =>
  here === undefined &&
  (record.outcome.status === "running" ||
    record.outcome.status === "abandoned" ||
    record.llm?.auditHead !== undefined)

export const make = Effect.fnUntraced(function* ({ lookUp }: RunHandlers, audit: AuditHandlers) {
  const ledger = yield* Effect.serviceOption(Ledger)
  const journal = yield* RunJournal

  /** Calls without costs are better than none. */
  const withCosts = Effect.fnUntraced(function* (runId: RunId, calls: ReadonlyArray<CallView>) {
    const usageUnitIds = calls.flatMap(({ callId }) => callId ?? [])
    if (Option.isNone(ledger) || usageUnitIds.length === 0) return calls
    const entries = yield* ledger.value.list({ runId, usageUnitIds }).pipe(
      Effect.map((page) => page.entries),
      Effect.catch(({ message }) =>
        Effect.as(Effect.logWarning(`the costs of the calls of ${runId} are not shown. ${message}`), [])
      )
    )
    return calls.map((call) => {
      const entry = entries.find(({ usageUnitId }) => usageUnitId === call.callId)
      return entry === undefined ? call : { ...call, cost: costOf(entry) }
    })
  })

  const callsOf = Effect.fnUntraced(function* ({
    here,
    record
  }: Found): Effect.fn.Return<
    { readonly calls: ReadonlyArray<CallView>; readonly total: number; readonly isElsewhere?: true },
    Effect.Error<ReturnType<AuditHandlers["calls"]>>,
    Effect.Services<ReturnType<AuditHandlers["calls"]>>
  > {
    if (record === undefined) return { calls: [], total: 0 }
    if (record.llm !== undefined)
      return { calls: record.llm.calls.map(ofRecord), total: record.llm.callsTotal }
    const audited = yield* audit.calls(record)
    return {
      ...(audited?.models() ?? none),
      ...noted(audited === undefined && isOfAnother({ here, record }))
    }
  })

  /** The newest readings of journals. Viewers ask again and again, and each entry is read once for all of them. */
  const readings = new Map<RunId, Reported>()
  const readingOf = (runId: RunId): Reported => {
    const reading = readings.get(runId) ?? {
      calls: new Map(),
      turn: Semaphore.makeUnsafe(1),
      total: 0,
      after: 0
    }
    readings.delete(runId)
    readings.set(runId, reading)
    const [oldest] = readings.keys()
    if (readings.size > readRunsMax && oldest !== undefined) readings.delete(oldest)
    return reading
  }

  /** Reads on in a journal. */
  const readOn = Effect.fnUntraced(function* (runId: RunId, reading: Reported) {
    const { calls } = reading
    while (true) {
      const page = yield* journal.read({ runId, after: reading.after, bytesMax: journalPieceBytes })
      for (const entry of page?.entries ?? []) {
        if (entry.type === "tool.started") {
          reading.total += 1
          const { arguments: asked, at, tool, toolCallId } = entry
          if (calls.size < toolCallsMax)
            calls.set(toolCallId, { source: "agent", at, toolCallId, tool: cut(tool), arguments: asked })
        }
        const begun = entry.type === "tool.ended" ? calls.get(entry.toolCallId) : undefined
        if (entry.type === "tool.ended" && begun !== undefined)
          calls.set(entry.toolCallId, {
            ...begun,
            endedAt: entry.at,
            isError: entry.isError,
            result: entry.result
          })
      }
      const last = page?.entries.at(-1)?.seq
      if (last === undefined) return { calls: [...calls.values()], total: reading.total }
      reading.after = last
    }
  })

  /** The calls that the agent reported, with their results. */
  const reported = (runId: RunId) =>
    Effect.suspend(() => {
      const reading = readingOf(runId)
      return readOn(runId, reading).pipe(reading.turn.withPermits(1))
    })

  return {
    calls: Effect.fn("SandboxServer.listCalls")(function* (
      id: string,
      query: { readonly after?: string; readonly limit?: number }
    ) {
      const found = yield* lookUp(id)
      const { runId } = found
      const after = yield* Problem.indexOf(query.after)
      const limit = query.limit ?? listedDefault
      const { calls, isElsewhere, total } = yield* callsOf(found)
      const page = calls.slice(after, after + limit)
      return {
        calls: yield* withCosts(runId, page),
        callsTotal: total,
        ...noted(isElsewhere === true),
        ...(after + limit < calls.length ? { next: String(after + limit) } : {})
      }
    }),

    tools: Effect.fn("SandboxServer.listTools")(function* (id: string) {
      const { here, record, runId } = yield* lookUp(id)
      const audited = record && (yield* audit.calls(record))
      const host = audited?.tools() ?? none
      const isElsewhere = record !== undefined && audited === undefined && isOfAnother({ here, record })
      const own = yield* reported(runId).pipe(Effect.catch(Problem.storeUnavailable))
      const tools = [...host.calls, ...own.calls].toSorted((a, b) => a.at.localeCompare(b.at))
      const truncated = host.total + own.total > toolCallsMax
      return { tools: tools.slice(0, toolCallsMax), truncated, ...noted(isElsewhere) }
    })
  }
})
