/**
 * Compares three records of every call: the audit, the ledger, and LiteLLM's rows. Pure.
 *
 * Each call must be once in the audit and once in the ledger. Its verdict must be what the rows say, found here by
 * other means than reconciliation's. `problems` lists everything that is not so, and must be empty.
 */
import { type LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { key } from "@cogni/sandbox-ledger/EntryKey"
import { unknownUnitId } from "@cogni/sandbox-ledger/EntryFields"
import * as Money from "@cogni/sandbox-ledger/Money"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import { type Api, type Fate, paths, type PlannedRun } from "./BillingPlan.ts"
import { type AuditedRun, callIdOf, type Row } from "./BillingRows.ts"

export interface ProvenRun {
  readonly runId: string
  readonly plan: Pick<PlannedRun, "billingAccountId" | "fate" | "isSealed">
  readonly audit: AuditedRun
}

export interface Records {
  readonly runs: ReadonlyArray<ProvenRun>
  /** All revisions of all entries. */
  readonly entries: ReadonlyArray<LedgerEntry>
  readonly rows: ReadonlyArray<Row>
}

/** Sums of a group of calls. */
export interface Line {
  readonly name: string
  readonly calls: number
  readonly matched: number
  readonly drifted: number
  /** Calls that were charged as reserved first, until their rows were read. */
  readonly estimatedFirst: number
  readonly estimated: number
  readonly missing: number
  readonly pending: number
  /** Sum of the ledger, in US dollars. */
  readonly oursUsd: string
  /** Sum of LiteLLM's rows. */
  readonly rowsUsd: string
  /** The part of the difference that drifted and missing entries explain. */
  readonly explainedUsd: string
}

export interface Proof {
  readonly problems: ReadonlyArray<string>
  readonly byPath: ReadonlyArray<Line>
  readonly byFate: ReadonlyArray<Line>
  readonly byAccount: ReadonlyArray<Line>
  readonly total: Line
  /** Number of newest entries for each state and reason. */
  readonly reasons: ReadonlyArray<readonly [name: string, calls: number]>
}

/** One call, in all records. */
interface Call {
  readonly run: ProvenRun
  readonly callId: string
  readonly path: string
  readonly first: LedgerEntry
  readonly entry: LedgerEntry
  readonly rows: ReadonlyArray<Row>
}

/** Difference of two costs that is rounding, as reconciliation has it. */
const tolerance = (usd: number) => Math.max(1e-9, usd * 1e-6)

const isZero = ({ completion_tokens, prompt_tokens, spend }: Row): boolean =>
  spend === 0 && prompt_tokens === 0 && completion_tokens === 0

const newestOf = (entries: ReadonlyArray<LedgerEntry>): ReadonlyMap<string, ReadonlyArray<LedgerEntry>> =>
  new Map(
    [...Map.groupBy(entries, key)].map(([name, revisions]) => [
      name,
      revisions.toSorted((a, b) => a.revision - b.revision)
    ])
  )

export const make = ({ entries, rows, runs }: Records): Proof => {
  const problems: Array<string> = []
  const runOf = new Map(runs.map((run) => [run.runId, run]))
  const rowsOf = Map.groupBy(rows, callIdOf)
  const calls: Array<Call> = []
  const seen = new Set<string>()
  const others: Array<LedgerEntry> = []
  for (const [name, revisions] of newestOf(entries)) {
    const first = revisions[0]!
    const entry = revisions.at(-1)!
    const { runId, usageUnitId: callId } = entry
    const run = runOf.get(runId)
    if (revisions.some(({ revision }, index) => revision !== index))
      problems.push(`${name} has revisions ${revisions.map(({ revision }) => revision).join(", ")}`)
    if (run === undefined) problems.push(`${name} is of no run`)
    else if (callId.startsWith("row:") || callId === unknownUnitId) others.push(entry)
    else {
      if (seen.has(callId)) problems.push(`${name} is in the ledger twice`)
      seen.add(callId)
      const path = pathOf(run.audit, callId)
      calls.push({ run, callId, path, first, entry, rows: rowsOf.get(callId) ?? [] })
    }
  }
  for (const { audit, runId } of runs)
    for (const callId of audit.started.keys())
      if (!seen.has(callId)) problems.push(`${runId}/${callId} is in the audit and not in the ledger`)
  const unknown = new Set(others.map(({ usageUnitId }) => usageUnitId))
  for (const row of rows)
    if (!seen.has(callIdOf(row)) && !unknown.has(`row:${encodeURIComponent(row.request_id)}`))
      problems.push(`row ${row.request_id} of ${row.end_user} belongs to no entry`)
  problems.push(...others.flatMap((entry) => unrefused(entry, rows, calls)))
  for (const call of calls) problems.push(...problemsOf(call))
  const group = (nameOf: (call: Call) => string) =>
    [...Map.groupBy(calls, nameOf)]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, some]) => lineOf(name, some))
  const proof = {
    byPath: group(({ path }) => path),
    byFate: group(({ run: { plan } }) => nameOfFate(plan)),
    byAccount: group(({ run: { plan } }) => plan.billingAccountId),
    total: lineOf("all", calls)
  }
  problems.push(...[proof.total, ...Object.values(proof).flat()].flatMap(unbalanced))
  return { ...proof, problems, reasons: reasonsOf([...calls.map(({ entry }) => entry), ...others]) }
}

/**
 * Says why the row of an entry is not of a call that LiteLLM refused before it read the ID. Such a row failed and costs
 * nothing. Its key is of a run with a call that was sent and has no row.
 */
const unrefused = (
  { detail, reason, runId, runKeyHash, state, usageUnitId }: LedgerEntry,
  rows: ReadonlyArray<Row>,
  calls: ReadonlyArray<Call>
): ReadonlyArray<string> => {
  if (state !== "matched") return [`${runId}/${usageUnitId} is ${reason}: ${detail}`]
  const row = rows.find(({ request_id }) => usageUnitId === `row:${encodeURIComponent(request_id)}`)
  const without = calls.some(
    ({ callId, entry, rows: own, run }) =>
      entry.runKeyHash === runKeyHash &&
      own.length === 0 &&
      run.audit.started.get(callId)?.path !== "/v1/messages/count_tokens"
  )
  const isOf =
    row !== undefined && row.status === "failure" && isZero(row) && row.api_key === runKeyHash && without
  return isOf ? [] : [`${runId}/${usageUnitId} is no row of a refused call`]
}

const nameOfFate = ({ fate, isSealed }: { readonly fate: Fate; readonly isSealed: boolean }): string =>
  isSealed ? `${fate}, in a sealed container` : fate

const pathOf = ({ started }: AuditedRun, callId: string): string => {
  const call = started.get(callId)
  const api = (Object.keys(paths) as Array<Api>).find((name) => paths[name] === call?.path.split("?")[0])
  return `${api ?? "unknown"}, ${call?.stream === true ? "streamed" : "whole"}`
}

/** Lists the problems of one call. */
const problemsOf = ({ callId, entry, first, rows, run }: Call): ReadonlyArray<string> => {
  const { audit, plan, runId } = run
  const found: Array<string> = []
  const problem = (text: string) => found.push(`${runId}/${callId} (${entry.state}) ${text}`)
  const started = audit.started.get(callId)
  const usage = audit.ended.get(callId)?.usage
  if (started === undefined) problem("is in the ledger and not in the audit")
  if (first.costUsd !== undefined && first.priceSource !== "free" && usage?.costUsd !== undefined)
    if (first.costUsd !== MoneySums.rounded(usage.costUsd))
      problem(`costs ${first.costUsd} in the ledger and ${usage.costUsd} in the audit`)
  if (entry.billingAccountId !== plan.billingAccountId) problem(`is billed to ${entry.billingAccountId}`)
  if (entry.runKeyHash !== audit.keyHash) problem("has another key than the audit")
  for (const row of rows) {
    if (row.end_user !== plan.billingAccountId) problem(`has a row that bills ${row.end_user}`)
    if (row.api_key !== audit.keyHash) problem("has a row of another key")
    const rowRun = row.metadata.spend_logs_metadata?.["run_id"]
    // LiteLLM keeps the metadata of a failed call under the name of Chat Completions only, so rows of the other APIs
    // have none. Their key is the run's.
    const isBare =
      rowRun === undefined &&
      row.status === "failure" &&
      (isZero(row) || !(audit.started.get(callId)?.path.startsWith(paths.chat) ?? true))
    if (rowRun !== runId && !isBare)
      problem(`has a row of run ${String(rowRun)} (${row.status}, ${row.spend} USD, call ${row.request_id})`)
  }
  const verdict = unexplained(entry, rows)
  if (verdict !== undefined) problem(verdict)
  return found
}

/** Says why the state of an entry is not what its rows are. */
const unexplained = (entry: LedgerEntry, all: ReadonlyArray<Row>): string | undefined => {
  const { costUsd, detail, reason, state } = entry
  const paid = all.filter((row) => !(isZero(row) && row.status === "failure"))
  const [row] = paid
  switch (state) {
    case "pending":
    case "estimated":
      return "has no verdict"
    case "missing":
      return all.length > 0 ? "has a row" : detail === undefined ? "does not say why" : undefined
    case "drifted":
      return reason === undefined || detail === undefined ? "does not say why" : unfounded(entry, all, paid)
    case "matched":
      if (paid.length > 1) return `has ${paid.length} rows`
      if (costUsd === undefined) return "has no cost"
      if (reason === "no_row_expected" || reason === "refused_call")
        return all.length > 0 ? "has a row" : charged(costUsd)
      if (row === undefined) return charged(costUsd)
      return Math.abs(row.spend - costUsd) <= tolerance(row.spend)
        ? undefined
        : `costs ${costUsd}, and its row ${row.spend}`
  }
}

const charged = (costUsd: number) =>
  costUsd === 0 ? undefined : `has no row with a cost, and costs ${costUsd}`

/** Says why a difference that an entry states does not exist. */
const unfounded = (
  entry: LedgerEntry,
  all: ReadonlyArray<Row>,
  paid: ReadonlyArray<Row>
): string | undefined => {
  const { costUsd = 0, inputTokens, outputTokens, reason } = entry
  const [row] = paid.length > 0 ? paid : all
  if (row === undefined) return "has no row that could differ"
  const differs =
    reason === "zero_row"
      ? isZero(row)
      : reason === "duplicate_rows"
        ? paid.length > 1
        : reason === "cost_differs"
          ? Math.abs(row.spend - costUsd) > tolerance(row.spend)
          : reason === "tokens_differ"
            ? row.prompt_tokens !== inputTokens ||
              row.completion_tokens !== outputTokens ||
              row.spend !== costUsd
            : reason === "row_without_cost" && row.spend === 0 && !isZero(row)
  return differs ? undefined : `says ${reason}, and its row does not`
}

const sum = (amounts: ReadonlyArray<number>): Money.Pico =>
  amounts.reduce((total, usd) => MoneySums.add(total, Money.fromUsd(usd)), MoneySums.zero)

const lineOf = (name: string, calls: ReadonlyArray<Call>): Line => {
  const count = (state: LedgerEntry["state"]) => calls.filter(({ entry }) => entry.state === state).length
  const apart = calls.filter(({ entry: { state } }) => state === "drifted" || state === "missing")
  const ours = sum(calls.map(({ entry }) => entry.costUsd ?? 0))
  const theirs = sum(calls.flatMap(({ rows }) => rows.map(({ spend }) => spend)))
  const explained =
    sum(apart.map(({ entry }) => entry.costUsd ?? 0)) -
    sum(apart.flatMap(({ rows }) => rows.map(({ spend }) => spend)))
  return {
    name,
    calls: calls.length,
    matched: count("matched"),
    drifted: count("drifted"),
    estimatedFirst: calls.filter(({ first }) => first.state === "estimated").length,
    estimated: count("estimated"),
    missing: count("missing"),
    pending: count("pending"),
    oursUsd: Money.format(ours),
    rowsUsd: Money.format(theirs),
    explainedUsd: Money.format(explained as Money.Pico)
  }
}

/** The sums must be equal, up to the entries that say why they differ, and up to rounding. */
const unbalanced = ({ calls, explainedUsd, name, oursUsd, rowsUsd }: Line): ReadonlyArray<string> => {
  const rest = Math.abs(Number(oursUsd) - Number(explainedUsd) - Number(rowsUsd))
  return rest <= 1e-9 * Math.max(1, calls)
    ? []
    : [`${name}: the ledger has ${oursUsd}, the rows ${rowsUsd}, and ${explainedUsd} is explained`]
}

const reasonsOf = (entries: ReadonlyArray<LedgerEntry>): Proof["reasons"] =>
  [...Map.groupBy(entries, ({ reason, state }) => (reason === undefined ? state : `${state}, ${reason}`))]
    .map(([name, some]) => [name, some.length] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
