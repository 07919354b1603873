/** `ps`, `logs`, `inspect`: show run records. They only read the run database, so they work without an engine. */
import { RunId } from "@cogni/sandbox-core/RunId"
import type { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { outputOf } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Effect, Layer, Schema } from "effect"
import { refusal } from "./Failure.ts"
import * as LiveRun from "./LiveRun.ts"
import * as Output from "./Output.ts"
import * as RecordReport from "./RecordReport.ts"
import * as Records from "./Records.ts"
import * as RunLedger from "./RunLedger.ts"
import * as RunPrefix from "./RunPrefix.ts"
import * as RunSummary from "./RunSummary.ts"
import { Settings } from "./Settings.ts"

/** The run store that the environment names, and the journals of this host. */
export const store = Layer.unwrap(
  Effect.map(Settings, (settings) => Layer.merge(Records.looked(settings), Records.journal(settings)))
)

/** Lists active runs, or all. */
export const ps = Effect.fnUntraced(function* (input: Output.Asked & { readonly all: boolean }) {
  const records = (yield* (yield* RunStore).list).filter(
    ({ outcome }) => input.all || outcome.status === "running"
  )
  const now = new Date()
  if (input.output === "json") {
    return yield* Output.json(records.map((record) => RecordReport.summary(record, now)))
  }
  if (records.length > 0) return yield* Output.lines(RecordReport.list(records, now))
  yield* Output.note(
    input.all ? "no runs are recorded" : "no active runs; --all includes those that have ended"
  )
}, Effect.provide(store))

/** Prints the stored output of a run, or with `follow` its output until it ends. */
export const logs = Effect.fnUntraced(function* (
  input: Output.Asked & {
    readonly run: string
    readonly stderr: boolean
    readonly follow: boolean
    readonly file?: string | undefined
  }
) {
  if (input.file !== undefined)
    return yield* refusal(
      "usage",
      "--file is for a recording",
      "Add --output asciicast, or redirect standard output"
    )
  const record = yield* find(input.run)
  const kept = outputOf(record)
  if (kept === undefined || input.follow) return yield* journaled(record, input)
  const { runId } = record
  if (input.output === "json") return yield* Output.json({ runId, output: kept })
  const channel = input.stderr ? kept.stderr : kept.stdout
  yield* Output.Output.use((output) => output.stdout(channel.text))
  if (channel.truncated) yield* Output.note(`truncated: this is the beginning of ${channel.bytes} bytes`)
}, Effect.provide(store))

/** Prints the output in the journal of a run: so far, or until it ends. With JSON, its entries, one a line. */
const journaled = Effect.fnUntraced(function* (
  { outcome, runId }: RunRecord,
  input: Output.Asked & { readonly stderr: boolean; readonly follow: boolean }
) {
  const output = yield* Output.Output
  const channel = input.stderr ? "stderr" : "stdout"
  const see = (entries: ReadonlyArray<JournalEntry>) =>
    Effect.forEach(
      entries,
      (entry) =>
        input.output === "json"
          ? output.stdoutJson(`${JSON.stringify(entry)}\n`)
          : entry.type === "output.written" && entry.channel === channel
            ? output.stdout(entry.text)
            : entry.type === "journal.truncated"
              ? Output.note("truncated: the journal of this run is full")
              : entry.type === "output.truncated" && entry.channel === channel
                ? Output.note("truncated: the run keeps no more of its output")
                : Effect.void,
      { discard: true }
    )
  const isFound = input.follow
    ? yield* LiveRun.follow(runId, see)
    : yield* Effect.flatMap(LiveRun.rest(runId, 0), (found) =>
        found === undefined ? Effect.succeed(false) : Effect.as(see(found.entries), true)
      )
  if (isFound) return
  return yield* refusal(
    "notFound",
    `no output of ${runId} is stored here (${RecordReport.status(outcome)})`,
    outcome.status === "running"
      ? "It is stored when the run ends. Until then, only the host that runs it has its output"
      : "It is stored only if a run exits, or reaches a limit",
    { runId }
  )
})

/** Prints a summary of a run for people, its whole record as JSON for scripts, or only the posture. */
export const inspect = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly run: string; readonly posture: boolean }
) {
  const record = yield* find(input.run)
  if (!input.posture) {
    const cost = yield* RunLedger.costOf(record.runId)
    return yield* input.output === "json"
      ? Output.json({ ...RecordReport.toJson(record), ...(cost === undefined ? {} : { cost }) })
      : Output.lines(RunSummary.lines(record, cost, new Date()))
  }
  if (record.posture === undefined) {
    return yield* refusal(
      "notFound",
      `${record.runId} has no posture`,
      "Its sandbox was never started, or is still starting",
      { runId: record.runId }
    )
  }
  yield* Output.json(record.posture)
}, Effect.provide(store))

/** Finds a run by ID or unique prefix. Reads the whole record, because the list may omit the output. */
export const find = Effect.fnUntraced(function* (run: string) {
  const runs = yield* RunStore
  // The list has only the newest runs.
  const exact = Schema.is(RunId)(run) ? yield* runs.get(run) : undefined
  if (exact !== undefined) return exact
  const records = yield* runs.list
  const match = RunPrefix.match(
    run,
    records.map(({ runId }) => runId)
  )
  if (match._tag === "Found") {
    return (yield* runs.get(match.id)) ?? records.find(({ runId }) => runId === match.id)!
  }
  return yield* refusal(
    "notFound",
    match._tag === "None" ? `there is no run ${run}` : `several runs begin with ${run}`,
    "See: cogni-sandbox ps --all"
  )
})
