/**
 * Formats what runs cost, for people, scripts and spreadsheets. Pure.
 *
 * Names come from agents, callers and upstreams. For people they are shown on one line, and in CSV a cell that a
 * spreadsheet would execute is escaped. An unknown cost is shown as `unknown`, never as 0.
 */
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import type { GroupBy, SpendSum } from "@cogni/sandbox-ledger/LedgerQuery"
import type { SettledRun } from "@cogni/sandbox-ledger/LedgerRun"
import type { RunCost } from "@cogni/sandbox-ledger/RunCost"
import * as Money from "@cogni/sandbox-ledger/Money"
import { stringify } from "csv-stringify/sync"
import { costOf, usd } from "./CostWords.ts"
import { plural } from "./Quantity.ts"
import { clip, columns, oneLine } from "./TerminalText.ts"

/** Characters of a name in a table. */
const nameCharsMax = 60

const dollars = (amount: Money.Pico | undefined): string =>
  amount === undefined ? "unknown" : `$${Money.format(amount)}`

const nameOf = (text: string | undefined): string =>
  text === undefined ? "-" : clip(oneLine(text), nameCharsMax)

/** Explains which part of a cost is uncertain; empty if none is. */
const doubts = ({ callsWithoutCost, estimatedCost, states }: SpendSum): ReadonlyArray<string> => [
  ...(callsWithoutCost === 0 ? [] : [`${plural(callsWithoutCost, "call")} of unknown cost`]),
  ...(estimatedCost === undefined || estimatedCost === 0n ? [] : [`${dollars(estimatedCost)} estimated`]),
  ...(states.drifted === 0
    ? []
    : [
        `${plural(states.drifted, "call")} that ${states.drifted === 1 ? "differs" : "differ"} from the upstream's rows`
      ]),
  ...(states.missing === 0 ? [] : [`${plural(states.missing, "call")} without a row`])
]

/** Formats sums as a table, with a total below them. */
export const table = (
  by: GroupBy,
  sums: ReadonlyArray<SpendSum>,
  total: SpendSum | undefined
): ReadonlyArray<string> =>
  columns([
    [by.toUpperCase(), "CALLS", "INPUT", "OUTPUT", "COST", "UNCERTAIN"],
    ...[...sums, ...(total === undefined || by === "total" ? [] : [{ ...total, group: "total" }])].map(
      (sum) => [
        by === "total" ? "all" : nameOf(sum.group),
        String(sum.calls),
        String(sum.inputTokens),
        String(sum.outputTokens),
        dollars(sum.cost),
        doubts(sum).join(", ")
      ]
    )
  ])

/** A sum as JSON. Amounts are numbers of dollars. */
export const sumJson = ({ cost, estimatedCost, group, ...counts }: SpendSum): object => ({
  group: group ?? null,
  ...counts,
  costUsd: cost === undefined ? null : Money.toUsd(cost),
  estimatedCostUsd: estimatedCost === undefined ? 0 : Money.toUsd(estimatedCost)
})

const csv = (rows: ReadonlyArray<Readonly<Record<string, string | number>>>, header: ReadonlyArray<string>) =>
  stringify([...rows], { header: true, columns: [...header], escape_formulas: true })

/** Sums as CSV. An unknown cost is an empty cell, and amounts are exact. */
export const sumsCsv = (by: GroupBy, sums: ReadonlyArray<SpendSum>): string =>
  csv(
    sums.map((sum) => ({
      [by]: sum.group ?? "",
      calls: sum.calls,
      calls_without_cost: sum.callsWithoutCost,
      input_tokens: sum.inputTokens,
      output_tokens: sum.outputTokens,
      cache_read_tokens: sum.cacheReadTokens,
      cache_write_tokens: sum.cacheWriteTokens,
      cost_usd: sum.cost === undefined ? "" : Money.format(sum.cost),
      estimated_cost_usd: sum.estimatedCost === undefined ? "" : Money.format(sum.estimatedCost),
      ...sum.states
    })),
    [
      by,
      "calls",
      "calls_without_cost",
      "input_tokens",
      "output_tokens",
      "cache_read_tokens",
      "cache_write_tokens",
      "cost_usd",
      "estimated_cost_usd",
      "pending",
      "matched",
      "drifted",
      "missing",
      "estimated"
    ]
  )

/** Explains each call of a run: what was reserved, what is charged, from which source, in which state, and why. */
export const explain = (
  runs: ReadonlyArray<SettledRun>,
  entries: ReadonlyArray<LedgerEntry>,
  cost: RunCost | undefined
): ReadonlyArray<string> => [
  ...runs.map(
    (run) =>
      `${run.runId}${run.attempt === 0 ? "" : `, attempt ${run.attempt}`}: account ${nameOf(run.billingAccountId)}, ` +
      `${nameOf(run.agentId ?? "no agent")}, ${nameOf(run.upstream)}, ` +
      (run.closedAt === undefined ? "not settled yet" : `settled at ${run.closedAt}`)
  ),
  ...(entries.length === 0
    ? ["no call to a model"]
    : columns([
        ["CALL", "BEGAN", "MODEL", "INPUT", "OUTPUT", "RESERVED", "CHARGED", "FROM", "STATE", "WHY"],
        ...entries.map((entry) => [
          `${nameOf(entry.usageUnitId)}${entry.revision === 0 ? "" : ` #${entry.revision}`}`,
          entry.at,
          nameOf(entry.model),
          entry.inputTokens === undefined ? "-" : String(entry.inputTokens),
          entry.outputTokens === undefined ? "-" : String(entry.outputTokens),
          entry.reservedUsd === undefined ? "-" : usd(entry.reservedUsd),
          usd(entry.costUsd),
          entry.priceSource,
          entry.state,
          oneLine([entry.reason, entry.detail].filter((part) => part !== undefined).join(": "))
        ])
      ])),
  ...(cost === undefined || entries.length === 0 ? [] : [`total: ${costOf(cost)}`])
]

/** Entries as CSV, with all their fields. */
export const entriesCsv = (entries: ReadonlyArray<LedgerEntry>): string =>
  csv(
    entries.map((entry) => ({
      run: entry.runId,
      attempt: entry.attempt,
      call: entry.usageUnitId,
      revision: entry.revision,
      at: entry.at,
      account: entry.billingAccountId,
      user: entry.userId ?? "",
      graph: entry.graphId ?? "",
      agent: entry.agentId ?? "",
      upstream: entry.upstream,
      model: entry.model,
      input_tokens: entry.inputTokens ?? "",
      output_tokens: entry.outputTokens ?? "",
      cache_read_tokens: entry.cacheReadTokens ?? "",
      cache_write_tokens: entry.cacheWriteTokens ?? "",
      reserved_usd: entry.reservedUsd === undefined ? "" : Money.format(Money.fromUsd(entry.reservedUsd)),
      cost_usd: entry.costUsd === undefined ? "" : Money.format(Money.fromUsd(entry.costUsd)),
      price_source: entry.priceSource,
      outcome: entry.outcome ?? "",
      state: entry.state,
      reason: entry.reason ?? "",
      detail: entry.detail ?? ""
    })),
    [
      "run",
      "attempt",
      "call",
      "revision",
      "at",
      "account",
      "user",
      "graph",
      "agent",
      "upstream",
      "model",
      "input_tokens",
      "output_tokens",
      "cache_read_tokens",
      "cache_write_tokens",
      "reserved_usd",
      "cost_usd",
      "price_source",
      "outcome",
      "state",
      "reason",
      "detail"
    ]
  )
