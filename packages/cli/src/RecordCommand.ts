/** `ps`, `logs`, `inspect`: show run records. They only read the run database, so they work without an engine. */
import { outputOf, RunStore } from "@cogni/sandbox-core/RunStore"
import { Effect, Layer } from "effect"
import { refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as RecordReport from "./RecordReport.ts"
import * as Records from "./Records.ts"
import * as RunLedger from "./RunLedger.ts"
import * as RunPrefix from "./RunPrefix.ts"
import { Settings } from "./Settings.ts"

/** The run store that the environment names. */
export const store = Layer.unwrap(Effect.map(Settings, Records.looked))

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

/** Prints the stored output of a run. */
export const logs = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly run: string; readonly stderr: boolean }
) {
  const record = yield* find(input.run)
  const { outcome, runId } = record
  const kept = outputOf(record)
  if (kept === undefined) {
    return yield* refusal(
      "notFound",
      `no output of ${runId} is stored (${RecordReport.status(outcome)})`,
      outcome.status === "running"
        ? "It is stored when the run ends"
        : "It is stored only if a run exits, or reaches a limit",
      { runId }
    )
  }
  if (input.output === "json") return yield* Output.json({ runId, output: kept })
  const channel = input.stderr ? kept.stderr : kept.stdout
  yield* Output.Output.use((output) => output.stdout(channel.text))
  if (channel.truncated) yield* Output.note(`truncated: this is the beginning of ${channel.bytes} bytes`)
}, Effect.provide(store))

/** Prints the whole record, or only the posture. */
export const inspect = Effect.fnUntraced(function* (input: {
  readonly run: string
  readonly posture: boolean
}) {
  const record = yield* find(input.run)
  if (!input.posture) {
    const cost = yield* RunLedger.costOf(record.runId)
    return yield* Output.json({ ...RecordReport.toJson(record), ...(cost === undefined ? {} : { cost }) })
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
  const records = yield* runs.list
  const match = RunPrefix.match(
    run,
    records.map(({ runId }) => runId)
  )
  if (match._tag === "Found") {
    return (yield* runs.get(match.runId)) ?? records.find(({ runId }) => runId === match.runId)!
  }
  return yield* refusal(
    "notFound",
    match._tag === "None" ? `there is no run ${run}` : `several runs begin with ${run}`,
    "See: cogni-sandbox ps --all"
  )
})
