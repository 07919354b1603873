/**
 * The journal of a run: what happens in it, entry by entry, while it runs, for readers that come and go.
 *
 * A writer never waits and never fails: a journal that cannot be written, or is full, loses entries and says so. No
 * run waits for a reader. Text in an entry is untrusted: an agent chose it.
 */
import { Clock, Context, Effect, Layer, Schema, type Scope } from "effect"
import { Decider } from "./Approval.ts"
import type { RunId } from "./RunId.ts"
import { Evidence, Exhaustion, Phase } from "./RunFigures.ts"
import type { RunStoreError } from "./RunStore.ts"
import type { Outcome } from "./RunRecord.ts"
import { ToolEffect } from "./ToolAccess.ts"

/** Longest text of one entry. Longer output is split into more entries; other texts are cut. */
export const textCharsMax = 16_384

/** Longest name of a tool or a call in an entry. Longer ones are cut. */
const nameCharsMax = 1000

/** Maximum size of a journal. Then no more output, messages and tools are written, but everything else. */
export const journalBytesMax = 16 * 1024 * 1024

const Text = Schema.String

const entry = <const Type extends string, const Fields extends Schema.Struct.Fields>(
  type: Type,
  fields: Fields
) =>
  Schema.Struct({
    /** Counts from 1, without a gap. */
    seq: Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)),
    /** ISO 8601, in UTC. */
    at: Schema.String,
    type: Schema.Literal(type),
    ...fields
  })

/** The run has an ID; nothing is created yet. */
const Started = entry("run.started", {})

const PhaseEnded = entry("phase.ended", { phase: Phase, durationMs: Schema.Finite })

/** The sandbox isolation check passed; the agent starts now. */
const PostureVerified = entry("posture.verified", {})

/** Output of the agent: UTF-8, in which invalid bytes are U+FFFD. */
const OutputWritten = entry("output.written", {
  channel: Schema.Literals(["stdout", "stderr"]),
  /** Offset of `text` in the channel, in bytes of UTF-8. */
  from: Schema.Int,
  text: Text
})

/** Later output of the channel is counted, and not kept: the run keeps no more (`outputRetainedBytesMax`). */
const OutputTruncated = entry("output.truncated", { channel: Schema.Literals(["stdout", "stderr"]) })

/** A part of what the agent answers. */
const MessageWritten = entry("message.written", { text: Text })

/** The agent calls one of its own tools, or one of the host's. */
const ToolStarted = entry("tool.started", {
  toolCallId: Text,
  tool: Text,
  /** The arguments as JSON, cut. */
  arguments: Text
})

const ToolEnded = entry("tool.ended", {
  toolCallId: Text,
  isError: Schema.Boolean,
  /** The result, as JSON unless it is a text, cut. */
  result: Text
})

/** A call of a host tool waits for an approval. Its arguments are in the approval. */
const ApprovalRequested = entry("tool.approval_requested", {
  approvalId: Text,
  /** ID of the call, as in the audit. */
  toolCallId: Text,
  tool: Text,
  effect: ToolEffect,
  argumentsDigest: Text,
  expiresAt: Text
})

/** The approval has ended, and the call runs only if it is `approved`. */
const ApprovalDecided = entry("tool.approval_decided", {
  approvalId: Text,
  toolCallId: Text,
  decision: Schema.Literals(["approved", "denied", "expired", "cancelled"]),
  /** Absent without a decision. */
  decidedBy: Schema.optionalKey(Decider)
})

/** A canary was seen leaving the sandbox. */
const Suspected = entry("exfiltration.suspected", { evidence: Evidence })

/** A budget is spent. */
const Exhausted = entry("budget.exhausted", { exhaustion: Exhaustion })

/** The share of the subagents is spent: their calls are refused, and the main agent goes on. */
const ShareSpent = entry("subagents.exhausted", { exhaustion: Exhaustion })

/** From here on, output, messages and tools are missing: the journal is full. */
const Truncated = entry("journal.truncated", {})

/** The last entry: the sandbox has ended. Its commits may not be delivered yet. */
const Ended = entry("run.ended", {
  status: Schema.Literals(["exited", "failed", "closed", "interrupted", "abandoned"]),
  reason: Schema.optionalKey(Text),
  exitCode: Schema.optionalKey(Schema.Int)
})

const entries = [
  Started,
  PhaseEnded,
  PostureVerified,
  OutputWritten,
  OutputTruncated,
  MessageWritten,
  ToolStarted,
  ToolEnded,
  ApprovalRequested,
  ApprovalDecided,
  Suspected,
  Exhausted,
  ShareSpent,
  Truncated,
  Ended
] as const

export const JournalEntry = Schema.Union(entries).annotate({ identifier: "JournalEntry" })

export type JournalEntry = typeof JournalEntry.Type

type Unnumbered<Entry> = Entry extends unknown ? Omit<Entry, "seq" | "at"> : never

/** An entry that has no number and no time yet. */
export type JournalEvent = Unnumbered<Exclude<JournalEntry, { readonly type: "journal.truncated" }>>

/** The last entry of a run with this outcome. `undefined`: it is under way. */
export const endOf = (outcome: Outcome): Extract<JournalEvent, { type: "run.ended" }> | undefined =>
  outcome.status === "running"
    ? undefined
    : {
        type: "run.ended",
        status: outcome.status,
        ...(outcome.status === "failed" ? { reason: outcome.reason } : {}),
        ...(outcome.status === "exited" ? { exitCode: outcome.result.exitCode } : {})
      }

/** A part of a journal, the oldest entry first. */
export interface JournalPage {
  readonly entries: ReadonlyArray<JournalEntry>
  /** The journal has its last entry, and it is in this page or before it. */
  readonly ended: boolean
}

export interface JournalRequest {
  readonly runId: RunId
  /** `seq` of the last entry that the reader has (default 0: it has none). */
  readonly after?: number | undefined
  /** Maximum number of entries (default 1000). */
  readonly limit?: number | undefined
  /** Maximum size of the entries as JSON (default: a whole journal). One entry is always returned. */
  readonly bytesMax?: number | undefined
}

/** Default of `JournalRequest.limit`. */
export const pageEntriesMax = 1000

/** A numbered entry, and its line of JSON. */
export interface Written {
  readonly entry: JournalEntry
  readonly line: string
}

/** Size that is left for entries other than output, messages and tools. */
const reservedBytes = 256 * 1024

const bulky: ReadonlySet<JournalEvent["type"]> = new Set<JournalEvent["type"]>([
  "output.written",
  "message.written",
  "tool.started",
  "tool.ended"
])

const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

/** Splits text without splitting a surrogate pair. */
const pieces = (text: string): ReadonlyArray<string> => {
  const found: Array<string> = []
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + textCharsMax)
    if (to < text.length && /[\uD800-\uDBFF]/u.test(text.charAt(to - 1))) to -= 1
    found.push(text.slice(from, to))
    from = to
  }
  return found
}

/** Cuts an event to the sizes of entries. */
const fitted = (event: JournalEvent): ReadonlyArray<JournalEvent> => {
  const cut = (text: string) => text.slice(0, textCharsMax)
  switch (event.type) {
    case "output.written": {
      let { from } = event
      return pieces(event.text).map((text) => {
        const piece = { ...event, from, text }
        from += bytesOf(text)
        return piece
      })
    }
    case "message.written":
      return pieces(event.text).map((text) => ({ ...event, text }))
    case "tool.started":
      return [
        {
          ...event,
          toolCallId: event.toolCallId.slice(0, nameCharsMax),
          tool: event.tool.slice(0, nameCharsMax),
          arguments: cut(event.arguments)
        }
      ]
    case "tool.ended":
      return [{ ...event, toolCallId: event.toolCallId.slice(0, nameCharsMax), result: cut(event.result) }]
    default:
      return [event]
  }
}

/** Numbers the events of one run, and keeps their journal within its size. Pure, except for its own count. */
export const makePen = (bytesMax: number = journalBytesMax) => {
  let seq = 0
  let bytes = 0
  let isFull = false
  const put = (event: JournalEvent | { readonly type: "journal.truncated" }, at: string): Written => {
    const entry = { seq: seq + 1, at, ...event } as JournalEntry
    return { entry, line: `${JSON.stringify(entry)}\n` }
  }
  const take = (written: Written, limit: number): boolean => {
    const length = bytesOf(written.line)
    if (bytes + length > limit) return false
    seq += 1
    bytes += length
    return true
  }
  /** `isCrowded`: the writer has no room for more output, messages and tools, so the journal is full from here on. */
  return (event: JournalEvent, at: string, isCrowded = false): ReadonlyArray<Written> => {
    const isBulky = bulky.has(event.type)
    const written: Array<Written> = []
    for (const piece of fitted(event)) {
      if (isBulky && isFull) break
      const next = put(piece, at)
      const limit = isBulky ? bytesMax - reservedBytes : bytesMax
      if (take(next, isBulky && isCrowded ? 0 : limit)) {
        written.push(next)
        continue
      }
      if (!isBulky) break
      isFull = true
      const last = put({ type: "journal.truncated" }, at)
      if (take(last, bytesMax)) written.push(last)
    }
    return written
  }
}

/** Returns a page of entries that are all in memory. */
export const pageOf = (
  entries: ReadonlyArray<JournalEntry>,
  { after = 0, bytesMax = journalBytesMax, limit = pageEntriesMax }: Omit<JournalRequest, "runId">
): JournalPage => {
  const page: Array<JournalEntry> = []
  let bytes = 0
  for (const entry of entries) {
    if (page.length === limit) break
    if (entry.seq <= after) continue
    bytes += bytesOf(JSON.stringify(entry)) + 1
    if (bytes > bytesMax && page.length > 0) break
    page.push(entry)
  }
  const last = entries.at(-1)
  return { entries: page, ended: last?.type === "run.ended" && last.seq <= (page.at(-1)?.seq ?? after) }
}

/** Operations of all journals of a host. */
export interface RunJournals {
  /**
   * Adds an event. Never fails, and never waits for a disk. `run.started` opens the journal of a run; without it, and
   * after `close`, events are dropped.
   */
  readonly write: (runId: RunId, event: JournalEvent) => Effect.Effect<void>
  /** Writes what is still waiting, and closes the journal. Nothing is added afterwards. */
  readonly close: (runId: RunId) => Effect.Effect<void>
  /**
   * Postpones `run.ended` and the closing until the scope closes, for a reader of the run's events that adds to the
   * journal: it may be behind the end of the run.
   */
  readonly hold: (runId: RunId) => Effect.Effect<void, never, Scope.Scope>
  /** Returns entries. `undefined`: this host has no journal of the run. */
  readonly read: (request: JournalRequest) => Effect.Effect<JournalPage | undefined, RunStoreError>
}

/** Default: no journal is kept. */
export const RunJournal = Context.Reference<RunJournals>("@cogni/sandbox-core/RunJournal", {
  defaultValue: () => ({
    write: () => Effect.void,
    close: () => Effect.void,
    hold: () => Effect.void,
    read: () => Effect.succeed(undefined)
  })
})

/** Adds `hold` to the other operations. */
export const withHolds = (raw: Omit<RunJournals, "hold">): RunJournals => {
  const held = new Map<RunId, { holders: number; ended: JournalEvent | undefined; isClosed: boolean }>()
  return {
    ...raw,
    write: (runId, event) =>
      Effect.suspend(() => {
        const hold = event.type === "run.ended" ? held.get(runId) : undefined
        if (hold === undefined) return raw.write(runId, event)
        hold.ended = event
        return Effect.void
      }),
    close: (runId) =>
      Effect.suspend(() => {
        const hold = held.get(runId)
        if (hold === undefined) return raw.close(runId)
        hold.isClosed = true
        return Effect.void
      }),
    hold: (runId) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const hold = held.get(runId) ?? { holders: 0, ended: undefined, isClosed: false }
          hold.holders += 1
          held.set(runId, hold)
        }),
        () =>
          Effect.suspend(() => {
            const hold = held.get(runId)
            if (hold === undefined) return Effect.void
            hold.holders -= 1
            if (hold.holders > 0) return Effect.void
            held.delete(runId)
            return Effect.andThen(
              hold.ended === undefined ? Effect.void : raw.write(runId, hold.ended),
              hold.isClosed ? raw.close(runId) : Effect.void
            )
          })
      )
  }
}

/** A journal in memory. */
interface MemoryJournal {
  readonly pen: ReturnType<typeof makePen>
  readonly entries: Array<JournalEntry>
  isClosed: boolean
}

/** Journals in memory, without a limit on their number. */
export const makeMemory: Effect.Effect<RunJournals> = Effect.sync(() => {
  const journals = new Map<RunId, MemoryJournal>()
  return withHolds({
    write: (runId, event) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        if (event.type === "run.started" && !journals.has(runId))
          journals.set(runId, { pen: makePen(), entries: [], isClosed: false })
        const journal = journals.get(runId)
        if (journal === undefined || journal.isClosed) return
        journal.entries.push(...journal.pen(event, new Date(now).toISOString()).map(({ entry }) => entry))
      }),
    close: (runId) =>
      Effect.sync(() => {
        const journal = journals.get(runId)
        if (journal !== undefined) journal.isClosed = true
      }),
    read: ({ runId, ...asked }) =>
      Effect.sync(() => {
        const journal = journals.get(runId)
        return journal && pageOf(journal.entries, asked)
      })
  })
})

export const layerMemory: Layer.Layer<never> = Layer.effect(RunJournal, makeMemory)
