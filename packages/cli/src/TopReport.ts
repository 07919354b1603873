/** Formats the runs under way. Pure. An agent chooses the names of its tools, so each is one visible line. */
import type { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { formatMillis } from "./Quantity.ts"
import { clip, columns, oneLine } from "./TerminalText.ts"

/** Progress of a run, as far as its journal tells. */
export interface Progress {
  /** Number of the last entry. */
  readonly last: number
  /** The phase that has ended last, or what the agent does. */
  readonly doing: string
  readonly lastAt: string | undefined
  readonly outputBytes: number
  readonly tools: number
  readonly suspicions: number
}

export const nothing: Progress = {
  last: 0,
  doing: "starting",
  lastAt: undefined,
  outputBytes: 0,
  tools: 0,
  suspicions: 0
}

/** Adds an entry to what is known. */
export const progressed = (before: Progress, entry: JournalEntry): Progress => {
  const after = { ...before, last: entry.seq, lastAt: entry.at }
  switch (entry.type) {
    case "phase.ended":
      return { ...after, doing: entry.phase === "entrypoint" ? "agent" : before.doing }
    case "posture.verified":
      return { ...after, doing: "agent" }
    case "output.written":
      return { ...after, outputBytes: before.outputBytes + Buffer.byteLength(entry.text) }
    case "tool.started":
      return { ...after, tools: before.tools + 1, doing: entry.tool }
    case "tool.ended":
      return { ...after, doing: "agent" }
    case "exfiltration.suspected":
      return { ...after, suspicions: before.suspicions + 1 }
    default:
      return after
  }
}

interface TopRow {
  readonly record: RunRecord
  readonly progress: Progress
}

const nameOf = ({ spec }: RunRecord): string =>
  spec.llm?.identity.agentId ?? spec.llm?.identity.graphId ?? spec.argv[0]

const since = (at: string | undefined, now: Date): number | undefined =>
  at === undefined ? undefined : Math.max(0, now.getTime() - Date.parse(at))

/** Formats the runs as a table. */
export const table = (rows: ReadonlyArray<TopRow>, now: Date): ReadonlyArray<string> =>
  rows.length === 0
    ? ["no active runs"]
    : columns([
        ["RUN", "AGENT", "MODEL", "RUNS FOR", "LIMIT", "DOING", "TOOLS", "OUTPUT", "LAST EVENT"],
        ...rows.map(({ progress, record }) => {
          const idle = since(progress.lastAt, now)
          return [
            record.runId,
            clip(oneLine(nameOf(record)), 20),
            clip(oneLine(record.spec.llm?.model ?? "-"), 24),
            formatMillis(since(record.startedAt, now) ?? 0),
            formatMillis(record.spec.limits.runtimeSecondsMax * 1000),
            `${clip(oneLine(progress.doing), 24)}${progress.suspicions === 0 ? "" : " ! canary"}`,
            String(progress.tools),
            formatBytes(progress.outputBytes),
            idle === undefined ? "-" : `${formatMillis(idle)} ago`
          ]
        })
      ])

/** Describes a run for scripts. */
export const toJson = ({ progress, record }: TopRow, now: Date): object => ({
  runId: record.runId,
  agentId: record.spec.llm?.identity.agentId,
  model: record.spec.llm?.model,
  startedAt: record.startedAt,
  durationMs: since(record.startedAt, now),
  runtimeSecondsMax: record.spec.limits.runtimeSecondsMax,
  doing: progress.doing,
  tools: progress.tools,
  outputBytes: progress.outputBytes,
  suspicions: progress.suspicions,
  lastEventAt: progress.lastAt
})
