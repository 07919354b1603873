/**
 * `logs --output asciicast`: writes the recording of a run, from its journal on this host.
 *
 * Standard output gets it piece by piece. A file gets it as a whole, and stays as it was if that fails.
 */
import * as RunRecording from "@cogni/sandbox-core/RunRecording"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Effect, Stream } from "effect"
import { refusal } from "./Failure.ts"
import * as LiveRun from "./LiveRun.ts"
import * as Output from "./Output.ts"
import * as RecordCommand from "./RecordCommand.ts"
import * as RecordReport from "./RecordReport.ts"
import * as UserFiles from "./UserFiles.ts"

interface Input {
  readonly run: string
  readonly stderr: boolean
  readonly follow: boolean
  readonly file?: string | undefined
}

/** Gives the recording to `write`: so far, or until the run ends. */
const written = Effect.fnUntraced(function* <E, R>(
  record: RunRecord,
  follow: boolean,
  write: (lines: string) => Effect.Effect<void, E, R>
) {
  const { outcome, runId } = record
  const over = outcome.status === "running" ? undefined : record
  if (!follow || over !== undefined) {
    const recording = yield* RunRecording.open(runId, { record: over })
    if (recording === undefined) return false
    yield* Stream.runForEach(recording, write)
    return true
  }
  const writer = RunRecording.makeWriter({ title: runId })
  const isFound = yield* LiveRun.follow(runId, (entries) => write(entries.map(writer.add).join("")))
  if (isFound) yield* write(writer.end(yield* (yield* RunStore).describe(runId)))
  return isFound
})

export const recording = Effect.fnUntraced(
  function* (input: Input) {
    if (input.stderr)
      return yield* refusal(
        "usage",
        "--stderr selects one channel, and a recording has both",
        "Leave out --stderr, or --output asciicast"
      )
    const record = yield* RecordCommand.find(input.run)
    const { runId } = record
    const { workspace } = record.spec
    const agents = workspace.type === "directory" ? workspace.path : undefined
    const file = yield* UserFiles.reserve("--file", input.file, agents)
    const output = yield* Output.Output
    const pieces: Array<string> = []
    const isFound = yield* written(record, input.follow, (lines) =>
      file === undefined ? output.stdoutJson(lines) : Effect.sync(() => void pieces.push(lines))
    )
    if (!isFound)
      return yield* refusal(
        "notFound",
        `no recording of ${runId} is stored here (${RecordReport.status(record.outcome)})`,
        "Only the host that runs a run has its recording. For its output without times, leave out --output asciicast",
        { runId }
      )
    if (file === undefined) return
    yield* Effect.mapError(file.write(pieces.join("")), (error) => UserFiles.refusalOf("--file", error))
    yield* Output.note(`recording in ${file.path}`)
  },
  Effect.scoped,
  Effect.provide(RecordCommand.store)
)
