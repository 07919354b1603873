/**
 * `top`: shows the runs under way, and what they are doing, until it is interrupted.
 *
 * On a terminal, it redraws the table. Elsewhere, and with `--once`, it prints it once.
 */
import type { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { Effect } from "effect"
import * as LiveRun from "./LiveRun.ts"
import * as Output from "./Output.ts"
import { store } from "./RecordCommand.ts"
import * as TopReport from "./TopReport.ts"

/** Maximum number of shown runs, the newest first. */
const shownMax = 50

interface TopInput extends Output.Asked {
  readonly once: boolean
  readonly intervalSeconds: number
}

export const top = Effect.fnUntraced(function* (input: TopInput) {
  const output = yield* Output.Output
  const runs = yield* RunStore
  const seen = new Map<string, TopReport.Progress>()

  const look = Effect.gen(function* () {
    const { records, next } = yield* runs.search({ filter: { states: ["running"] }, limit: shownMax })
    const rows = yield* Effect.forEach(records, (record) =>
      Effect.gen(function* () {
        const before = seen.get(record.runId) ?? TopReport.nothing
        const found = yield* LiveRun.rest(record.runId, before.last)
        const entries: ReadonlyArray<JournalEntry> = found?.entries ?? []
        const progress = entries.reduce(TopReport.progressed, before)
        seen.set(record.runId, progress)
        return { record, progress }
      })
    )
    for (const runId of seen.keys()) if (!records.some((record) => record.runId === runId)) seen.delete(runId)
    return { rows, isMore: next !== undefined }
  })

  const isLive = output.stdoutIsTerminal && !input.once && input.output === "text"
  if (!isLive) {
    const { rows } = yield* look
    return yield* input.output === "json"
      ? Output.json(rows.map((row) => TopReport.toJson(row, new Date())))
      : Output.lines(TopReport.table(rows, new Date()))
  }
  while (true) {
    const { isMore, rows } = yield* look
    yield* output.screen([
      ...TopReport.table(rows, new Date()),
      ...(isMore ? [`only the newest ${shownMax} are shown`] : [])
    ])
    yield* Effect.sleep(`${input.intervalSeconds} seconds`)
  }
}, Effect.provide(store))
