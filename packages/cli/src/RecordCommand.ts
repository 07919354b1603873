/** `ps`, `logs`, `inspect`: what is kept of runs. Looks at the database of runs only, so it works without an engine. */
import { outputOf, RunStore } from "@cogni/sandbox-core/RunStore"
import { Effect, Layer } from "effect"
import { refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as RecordReport from "./RecordReport.ts"
import * as Records from "./Records.ts"
import { Settings } from "./Settings.ts"

/** Where records are kept, as the environment says. */
export const store = Layer.unwrap(Effect.map(Settings, Records.looked))

/** Running ones, or all. */
export const ps = Effect.fnUntraced(function* (input: Output.Asked & { readonly all: boolean }) {
  const records = (yield* (yield* RunStore).list).filter(
    ({ outcome }) => input.all || outcome.status === "running"
  )
  const now = new Date()
  if (input.output === "json") {
    return yield* Output.json(records.map((record) => RecordReport.summary(record, now)))
  }
  if (records.length > 0) return yield* Output.lines(RecordReport.list(records, now))
  yield* Output.note(input.all ? "no run is on record" : "nothing is running; --all shows what has ended")
}, Effect.provide(store))

/** What was kept of a run's output. */
export const logs = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly run: string; readonly stderr: boolean }
) {
  const record = yield* find(input.run)
  const { outcome, runId } = record
  const kept = outputOf(record)
  if (kept === undefined) {
    return yield* refusal(
      "notFound",
      `there is no output of ${runId} (${RecordReport.status(outcome)})`,
      outcome.status === "running"
        ? "It is kept when the run ends"
        : "It is kept of runs that ended by themselves, or at a limit",
      { runId }
    )
  }
  if (input.output === "json") return yield* Output.json({ runId, output: kept })
  const channel = input.stderr ? kept.stderr : kept.stdout
  yield* Output.Output.use((output) => output.stdout(channel.text))
  if (channel.truncated)
    yield* Output.note(`this is the beginning; the agent wrote ${channel.bytes} bytes in all`)
}, Effect.provide(store))

/** The whole record, or how the sandbox was held. */
export const inspect = Effect.fnUntraced(function* (input: {
  readonly run: string
  readonly posture: boolean
}) {
  const record = yield* find(input.run)
  if (!input.posture) return yield* Output.json(RecordReport.toJson(record))
  if (record.posture === undefined) {
    return yield* refusal(
      "notFound",
      `${record.runId} has no posture`,
      "Its sandbox was never started, or is being started now",
      { runId: record.runId }
    )
  }
  yield* Output.json(record.posture)
}, Effect.provide(store))

/** By its id, or by a beginning that only one has. Whole: in the list, the output of a run may be left out. */
export const find = Effect.fnUntraced(function* (run: string) {
  const runs = yield* RunStore
  const records = yield* runs.list
  const exact = records.find(({ runId }) => runId === run)
  const [only, another] =
    exact !== undefined ? [exact] : run === "" ? [] : records.filter(({ runId }) => runId.startsWith(run))
  if (only !== undefined && another === undefined) return (yield* runs.get(only.runId)) ?? only
  return yield* refusal(
    "notFound",
    only === undefined ? `there is no run ${run}` : `several runs begin with ${run}`,
    "See: cogni-sandbox ps --all"
  )
})
