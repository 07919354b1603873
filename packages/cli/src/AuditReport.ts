/**
 * Audits and what was found of them, as people and scripts read them. Pure.
 *
 * Paths, methods and names in an entry are as an agent chose them, and a file may have been written by anybody: nothing
 * of either reaches a terminal but as visible text on one line.
 */
import { formatBytes } from "@cogni/sandbox-core/RunResult"
import type { RunRecord } from "@cogni/sandbox-core/RunStore"
import type { AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import { formatMillis, plural } from "./Quantity.ts"
import * as RecordReport from "./RecordReport.ts"
import { clip, oneLine } from "./TerminalText.ts"

type Broken = Extract<AuditLog.Verdict, { readonly _tag: "Broken" }>

/** An abandoned run has ended, and nobody was left to close its audit. */
const mayBeOpen = ({ outcome }: RunRecord): boolean =>
  outcome.status === "running" || outcome.status === "abandoned"

/** What an audit is held against. */
export const expected = (record: RunRecord): AuditLog.Expected => ({
  runId: record.runId,
  head: record.llm?.auditHead,
  ended: !mayBeOpen(record)
})

/** There is no file: what was taken away, or why there never was one. */
export const absent = (
  record: RunRecord,
  accessLog: boolean
): Broken | { readonly _tag: "Never"; readonly detail: string; readonly remedy: string } => {
  const head = record.llm?.auditHead
  if (head !== undefined)
    return broken(record, "removed", `its file is missing, and the record knows of ${head.entries} entries`)
  const never = (detail: string, remedy: string) => ({ _tag: "Never", detail, remedy }) as const
  if (accessLog || record.llm?.proxy === "nginx")
    return never(
      `the proxy of ${record.runId} was nginx: its audit is an access log, no chain, and cannot be verified`,
      "Read it as it is (its path is llm.auditPath of cogni-sandbox inspect); run with --proxy gateway for one that can be"
    )
  if (record.spec.llm === undefined)
    return never(
      `${record.runId} had no way out, so there is no audit of it`,
      "See: cogni-sandbox inspect RUN"
    )
  return never(
    `there is no audit of ${record.runId} (${RecordReport.status(record.outcome)})`,
    "It begins when the run's way out is opened"
  )
}

/** Where it should be is something that leads elsewhere. */
export const elsewhere = (record: RunRecord): Broken =>
  broken(
    record,
    "not_of_this_run",
    "what lies in its place leads out of the run's directory; it was not read"
  )

const broken = (record: RunRecord, kind: AuditLog.ProblemKind, detail: string): Broken => ({
  _tag: "Broken",
  problem: { kind, line: 1, offset: 0, detail },
  sound: AuditLog.genesis(record.runId)
})

const counted = (entries: number): string => plural(entries, "entry", "entries")

const where = ({ detail, kind, line, offset }: AuditLog.Problem): string =>
  `${kind.replaceAll("_", " ")} at line ${line} (byte ${offset}): ${oneLine(detail)}`

/** What cannot be told, though nothing was found. */
const notes = (
  record: RunRecord,
  found: Extract<AuditLog.Verdict, { readonly _tag: "Whole" }>
): ReadonlyArray<string> => [
  ...(record.outcome.status === "running" ? ["the run is running: this is its audit so far"] : []),
  ...(record.outcome.status === "abandoned" ? ["the run's process has died: nobody closed its audit"] : []),
  ...(found.unfinishedBytes === 0 ? [] : [`${found.unfinishedBytes} bytes of a line have no end yet`]),
  ...(found.headKnown
    ? []
    : [
        found.closed
          ? "the record has no head of it to hold it against"
          : "the record has no head of it: entries that are missing at its end cannot be told"
      ])
]

/** For people. */
export const verdict = (record: RunRecord, found: AuditLog.Verdict): ReadonlyArray<string> => {
  if (found._tag === "Broken")
    return [
      `✗ the audit of ${record.runId} is not what was written`,
      `  ${where(found.problem)}`,
      `  ${counted(found.sound.entries)} before it ${found.sound.entries === 1 ? "is" : "are"} whole`
    ]
  const { entries, hash } = found.head
  return [
    `✓ the audit of ${record.runId} is whole: ${counted(entries)}${found.closed ? ", to its end" : ""}`,
    `  head ${hash}${found.headKnown ? ", as the record has it" : ""}`,
    ...notes(record, found).map((note) => `! ${note}`)
  ]
}

/** For scripts. */
export const toJson = (record: RunRecord, found: AuditLog.Verdict): object =>
  found._tag === "Broken"
    ? {
        runId: record.runId,
        ok: false,
        problem: { ...found.problem, detail: oneLine(found.problem.detail) },
        sound: found.sound
      }
    : {
        runId: record.runId,
        ok: true,
        head: found.head,
        live: record.outcome.status === "running",
        closed: found.closed,
        headKnown: found.headKnown,
        unfinishedBytes: found.unfinishedBytes,
        notes: notes(record, found)
      }

/** Beside entries that are shown all the same. */
export const warning = (record: RunRecord, { problem }: Broken): string =>
  `cogni-sandbox: the audit of ${record.runId} is not what was written: ${where(problem)}`

const textMax = 160

/** Somebody else's words, in quotes where a blank or a quote could make something else of them. */
const text = (value: string): string => {
  const said = clip(oneLine(value), textMax)
  return /^[^\s"]+$/u.test(said) ? said : JSON.stringify(said)
}

const given = (name: string, value: string | number | undefined): ReadonlyArray<string> =>
  value === undefined ? [] : [`${name}=${typeof value === "number" ? value : text(value)}`]

const facts = (line: AuditLine): ReadonlyArray<string> => {
  switch (line.type) {
    case "run.opened":
      return [
        ...given("upstream", line.upstream),
        ...given("carrier", line.carrier),
        ...given("models", line.models.join(",")),
        ...given("account", line.identity.billingAccountId),
        ...(line.tools.length === 0 ? [] : given("tools", line.tools.join(","))),
        ...given("canaries", line.canaries)
      ]
    case "call.started":
      return [
        text(line.method),
        text(line.path),
        ...given("model", line.model),
        `${formatBytes(line.requestBytes)} → ${formatBytes(line.sentBytes)}`,
        ...(line.droppedTotal === 0 ? [] : [`without ${line.droppedTotal}: ${text(line.dropped.join(","))}`]),
        ...given("call", line.callId)
      ]
    case "call.ended":
      return [
        String(line.status),
        line.outcome,
        formatBytes(line.responseBytes),
        formatMillis(line.durationMs),
        ...given("in", line.usage?.inputTokens),
        ...given("out", line.usage?.outputTokens),
        ...given("usd", line.usage?.costUsd),
        ...(line.usage?.estimated === true ? ["estimated"] : []),
        ...(line.usageMissing === true ? ["no usage"] : []),
        ...given("call", line.callId),
        ...given("detail", line.detail)
      ]
    case "request.refused":
      return [
        String(line.status),
        text(line.code),
        ...given("method", line.method),
        ...given("path", line.path),
        ...given("detail", line.detail),
        ...given("suppressed", line.suppressed)
      ]
    case "request.answered":
      return [String(line.status), text(line.method), text(line.path)]
    case "tool.called":
      return [text(line.tool), text(line.outcome), line.via, formatMillis(line.durationMs)]
    case "exfiltration.suspected":
      return [text(line.evidence.canary), text(line.evidence.encoding), line.evidence.channel]
    case "budget.exhausted":
      return [line.exhaustion.budget, `${line.exhaustion.used} of ${line.exhaustion.limit}`]
    case "run.closed":
      return [
        `calls=${line.callsTotal}`,
        `refused=${line.refusedTotal}`,
        `tools=${line.toolCallsTotal}`,
        `in=${line.usage.inputTokens}`,
        `out=${line.usage.outputTokens}`,
        ...given("usd", line.usage.costUsd),
        ...(line.usage.callsWithoutUsage === 0 ? [] : [`estimated-calls=${line.usage.callsWithoutUsage}`])
      ]
  }
}

/** One entry; what is not as it was written, or comes after that, is marked. */
export const line = ({ line: entry, number, sound }: AuditLog.Seen): string => {
  const mark = sound ? " " : "!"
  if (entry === undefined) return `${mark} ${number} cannot be read`
  return [`${mark} ${entry.seq}`, text(entry.at), entry.type, ...facts(entry)].join("  ")
}
