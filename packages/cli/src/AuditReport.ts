/**
 * Formats audits and their verification results for people and scripts. Pure.
 *
 * An agent chooses the paths, methods and names in an entry, and any program may have written the file. Both reach a
 * terminal only as visible text on one line.
 */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import type { AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import { formatMillis, plural } from "./Quantity.ts"
import * as RecordReport from "./RecordReport.ts"
import { clip, oneLine } from "./TerminalText.ts"

type Broken = Extract<AuditLog.Verdict, { readonly _tag: "Broken" }>

/** Explains a missing audit: it was removed, or it never existed. */
export const absent = (
  record: RunRecord,
  accessLog: boolean
): Broken | { readonly _tag: "Never"; readonly detail: string; readonly remedy: string } => {
  const head = record.llm?.auditHead
  if (head !== undefined)
    return broken(record, "removed", `the file is missing, but the record counts ${head.entries} entries`)
  const never = (detail: string, remedy: string) => ({ _tag: "Never", detail, remedy }) as const
  if (accessLog || record.llm?.proxy?.startsWith("nginx") === true)
    return never(
      `the proxy of ${record.runId} was nginx: its audit is an access log, which cannot be verified`,
      "Read the log itself (llm.auditPath of cogni-sandbox inspect). For a verifiable audit, run with --proxy gateway"
    )
  if (record.spec.llm === undefined && record.spec.packages.length === 0)
    return never(`${record.runId} had no egress, so it has no audit`, "See: cogni-sandbox inspect RUN")
  return never(
    `there is no audit of ${record.runId} (${RecordReport.status(record.outcome)})`,
    "An audit begins when the proxy of the run opens"
  )
}

/** Reports that the path of the audit is a link, or not a file. */
export const elsewhere = (record: RunRecord): Broken =>
  broken(record, "not_of_this_run", "its path is not a file in the run's own directory, so it was not read")

const broken = (record: RunRecord, kind: AuditLog.ProblemKind, detail: string): Broken => ({
  _tag: "Broken",
  problem: { kind, line: 1, offset: 0, detail },
  sound: AuditLog.genesis(record.runId)
})

const counted = (entries: number): string => plural(entries, "entry", "entries")

const where = ({ detail, kind, line, offset }: AuditLog.Problem): string =>
  `${kind.replaceAll("_", " ")} at line ${line} (byte ${offset}): ${oneLine(detail)}`

/** Lists what the verification of an intact audit leaves open. */
const notes = (
  record: RunRecord,
  found: Extract<AuditLog.Verdict, { readonly _tag: "Whole" }>
): ReadonlyArray<string> => [
  ...(record.outcome.status === "running" ? ["the run is still active: this is its audit so far"] : []),
  ...(record.outcome.status === "abandoned" ? ["the run's process died before it closed the audit"] : []),
  ...(found.unfinishedBytes === 0 ? [] : [`${found.unfinishedBytes} bytes of an incomplete line at the end`]),
  ...(found.headKnown
    ? []
    : [
        found.closed
          ? "the record has no head to compare with"
          : "the record has no head: entries missing at the end cannot be detected"
      ])
]

/** Formats a verdict for people. */
export const verdict = (record: RunRecord, found: AuditLog.Verdict): ReadonlyArray<string> => {
  if (found._tag === "Broken")
    return [
      `✗ the audit of ${record.runId} is not intact`,
      `  ${where(found.problem)}`,
      `  ${counted(found.sound.entries)} before it ${found.sound.entries === 1 ? "is" : "are"} intact`
    ]
  const { entries, hash } = found.head
  return [
    `✓ the audit of ${record.runId} is intact: ${counted(entries)}${found.closed ? ", complete" : ""}`,
    `  head ${hash}${found.headKnown ? ", which matches the record" : ""}`,
    ...notes(record, found).map((note) => `! ${note}`)
  ]
}

/** Formats a verdict for scripts. */
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

/** Warns about a broken audit whose entries are shown nevertheless. */
export const warning = (record: RunRecord, { problem }: Broken): string =>
  `cogni-sandbox: the audit of ${record.runId} is not intact: ${where(problem)}`

const textMax = 160

/** Quotes untrusted text if a space or a quote in it could make it look like another field. */
const text = (value: string): string => {
  const said = clip(oneLine(value), textMax)
  return /^[^\s"]+$/u.test(said) ? said : JSON.stringify(said)
}

const given = (name: string, value: string | number | undefined): ReadonlyArray<string> =>
  value === undefined ? [] : [`${name}=${typeof value === "number" ? value : text(value)}`]

const packageFacts = (
  line: Extract<AuditLine, { readonly type: "package.ended" }>
): ReadonlyArray<string> => [
  text(`${line.registry}:${line.package}`),
  ...given("file", line.file),
  String(line.status),
  text(line.outcome),
  ...given("source", line.source),
  formatBytes(line.bytes),
  formatMillis(line.durationMs),
  ...given("digest", line.digest),
  ...given("detail", line.detail)
]

const openedFacts = (line: Extract<AuditLine, { readonly type: "run.opened" }>): ReadonlyArray<string> => [
  ...given("upstream", line.upstream),
  ...given("carrier", line.carrier),
  ...given("models", line.models.join(",")),
  ...given("account", line.identity?.billingAccountId),
  ...(line.tools.length === 0 ? [] : given("tools", line.tools.join(","))),
  ...given("packages", line.packages?.join(",")),
  ...given("canaries", line.canaries)
]

const keyFacts = (line: Extract<AuditLine, { readonly type: "run.keyed" }>): ReadonlyArray<string> => [
  ...given("key", line.credential),
  ...given("alias", line.alias),
  ...given("hash", line.keyHash),
  ...given("expires", line.expiresAt),
  ...given("usd", line.budgetUsdMax),
  ...given("detail", line.detail)
]

const approvalFacts = (
  line: Extract<AuditLine, { readonly type: "tool.approval_requested" | "tool.approval_decided" }>
): ReadonlyArray<string> => [
  text(line.tool),
  ...(line.type === "tool.approval_requested"
    ? [line.effect, formatBytes(line.argumentsBytes), ...given("until", line.expiresAt)]
    : [line.decision, ...given("by", line.decidedBy && `${line.decidedBy.type} ${line.decidedBy.id}`)]),
  ...given("approval", line.approvalId)
]

const facts = (line: AuditLine): ReadonlyArray<string> => {
  switch (line.type) {
    case "run.opened":
      return openedFacts(line)
    case "run.keyed":
      return keyFacts(line)
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
    case "tool.approval_requested":
    case "tool.approval_decided":
      return approvalFacts(line)
    case "package.started":
      return [text(`${line.registry}:${line.package}`), ...given("file", line.file)]
    case "package.ended":
      return packageFacts(line)
    case "exfiltration.suspected":
      return [text(line.evidence.canary), text(line.evidence.encoding), line.evidence.channel]
    case "budget.exhausted":
    case "subagents.exhausted":
      return [line.exhaustion.budget, `${line.exhaustion.used} of ${line.exhaustion.limit}`]
    case "run.closed":
      return [
        `calls=${line.callsTotal}`,
        `refused=${line.refusedTotal}`,
        `tools=${line.toolCallsTotal}`,
        ...given("packages", line.packagesTotal),
        `in=${line.usage.inputTokens}`,
        `out=${line.usage.outputTokens}`,
        ...given("usd", line.usage.costUsd),
        ...(line.usage.callsWithoutUsage === 0 ? [] : [`estimated-calls=${line.usage.callsWithoutUsage}`])
      ]
  }
}

/** Formats an entry as one line. The first changed entry, and every entry after it, is marked with `!`. */
export const line = ({ line: entry, number, sound }: AuditLog.Seen): string => {
  const mark = sound ? " " : "!"
  if (entry === undefined) return `${mark} ${number} cannot be read`
  return [`${mark} ${entry.seq}`, text(entry.at), entry.type, ...facts(entry)].join("  ")
}
