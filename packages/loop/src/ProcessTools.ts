/**
 * `process.*`: tools for the background processes of a session.
 *
 * The table belongs to the session and ends with it; the tools reach only this table. An unknown ID is `validation`. A
 * process that has ended is a result in every tool.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { SignalName } from "@cogni/sandbox-core/ExecutorValues"
import { Effect, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import { Process, type ProcessTable, type UnknownProcess } from "./ProcessTable.ts"
import * as Tool from "./Tool.ts"

interface ProcessToolsOptions extends ToolPath.PlaceOptions {}

const { workingDirectory: _, ...said } = Process.fields

const wireNames = {
  processId: "process_id",
  exitCode: "exit_code",
  startedAt: "started_at",
  endedAt: "ended_at",
  outputBytes: "output_bytes"
} as const

/** State of a process in results. Long commands are shortened. */
const ProcessState = Schema.Struct(said).pipe(Schema.encodeKeys(wireNames))

const ProcessOutput = Schema.Struct({
  ...said,
  text: Schema.String,
  /** Requested bytes that are no longer kept, or over the limit of one answer. */
  droppedBytes: Schema.Int,
  nextByte: Schema.Int
}).pipe(Schema.encodeKeys({ ...wireNames, droppedBytes: "dropped_bytes", nextByte: "next_byte" }))

/** Limit on a log in a result; its end is kept. */
const outputBytesMax = 30_000

/** Default and maximum `timeout_seconds` of `process.wait`. */
const waitSeconds = 30
const waitSecondsMax = 300

const commandCharactersMax = 200

/** `executor` must be the executor of the table. */
export const make = (
  executor: Pick<Executor, "workspace">,
  table: ProcessTable,
  options: ProcessToolsOptions = {}
): ReadonlyArray<Tool.Tool> => [
  start(table, { ...options, workspace: executor.workspace }),
  list(table),
  logs(table),
  signal(table),
  wait(table)
]

const start = (table: ProcessTable, places: ToolPath.Places) =>
  Tool.make({
    name: "process__start",
    description:
      `Start a background command with /bin/sh -c, such as a server or a watcher. It ends with the session. Read ` +
      `its output with process__logs.`,
    effect: "state_change",
    input: Schema.Struct({
      command: ToolInput.Command,
      cwd: Schema.optionalKey(ToolInput.Directory),
      env: Schema.optionalKey(ToolInput.Environment),
      name: Schema.optionalKey(
        Schema.String.check(
          Schema.isPattern(/^[^\p{C}]{1,64}$/u, { expected: "1 to 64 characters without control characters" })
        ).annotate({ description: "For your own use; IDs are assigned" })
      )
    }),
    output: Schema.Struct({ process_id: Schema.String, cwd: Schema.String }),
    runtimeSecondsMax: ToolInput.slackSeconds,
    execute: ({ command, cwd, env, name }) =>
      Effect.gen(function* () {
        const path = yield* ToolPath.at("cwd", cwd, places)
        const workingDirectory = cwd === undefined ? places.workingDirectory : path.inside
        const { processId } = yield* table.start({ command, env, name, workingDirectory }).pipe(
          Effect.catchTags({
            ProcessRefused: ({ message }) => ToolFault.refuse("execution", message),
            SandboxError: (error) => ToolFault.failed(error, path)
          })
        )
        return { process_id: processId, cwd: path.shown }
      })
  })

const list = (table: ProcessTable) =>
  Tool.make({
    name: "process__list",
    description: "List the processes of this session: running ones, and those that ended recently.",
    effect: "read_only",
    input: Schema.Struct({
      state: Schema.optionalKey(
        Process.fields.state.annotate({ description: "Only processes in this state (default: all)" })
      )
    }),
    output: Schema.Struct({ processes: Schema.Array(ProcessState) }),
    resultBytesMax: 1024 * 1024,
    execute: ({ state }) =>
      Effect.map(table.list, (all) => ({
        processes: all.filter((process) => state === undefined || process.state === state).map(shortened)
      }))
  })

const logs = (table: ProcessTable) =>
  Tool.make({
    name: "process__logs",
    description:
      "Read the end of a process's output, standard output and standard error in order of arrival. Pass the " +
      "next_byte of one answer as after_byte to read only newer output.",
    effect: "read_only",
    input: Schema.Struct({
      process_id: processId,
      after_byte: Schema.optionalKey(
        ToolInput.count(0, Number.MAX_SAFE_INTEGER, "The next_byte of an earlier answer")
      )
    }),
    output: ProcessOutput,
    resultBytesMax: ToolInput.jsonBytesMax(outputBytesMax),
    execute: ({ after_byte, process_id }) =>
      table.log(process_id, { afterByte: after_byte, textBytesMax: outputBytesMax }).pipe(
        Effect.map(({ process, ...log }) => ({ ...shortened(process), ...log })),
        Effect.catch(unknown)
      )
  })

const signal = (table: ProcessTable) =>
  Tool.make({
    name: "process__signal",
    description:
      "Send a signal to a process and all its children: SIGTERM asks it to end, SIGKILL kills it. If it has " +
      "already ended, delivered is false.",
    effect: "state_change",
    input: Schema.Struct({ process_id: processId, signal: SignalName }),
    output: Schema.Struct({ process_id: Schema.String, delivered: Schema.Boolean }),
    runtimeSecondsMax: ToolInput.slackSeconds,
    execute: ({ process_id, signal }) =>
      table.signal(process_id, signal).pipe(
        Effect.map((delivered) => ({ process_id, delivered })),
        Effect.catchTags({ UnknownProcess: unknown, SandboxError: (error) => ToolFault.failed(error) })
      )
  })

const wait = (table: ProcessTable) =>
  Tool.make({
    name: "process__wait",
    description: `Wait until a process has ended, for timeout_seconds (default ${waitSeconds}, at most ${waitSecondsMax}). If it has not, its state is "running".`,
    effect: "read_only",
    input: Schema.Struct({
      process_id: processId,
      timeout_seconds: Schema.optionalKey(ToolInput.seconds(0, waitSecondsMax))
    }),
    output: ProcessState,
    runtimeSecondsMax: waitSecondsMax + ToolInput.slackSeconds,
    execute: ({ process_id, timeout_seconds }) =>
      table
        .wait(process_id, timeout_seconds ?? waitSeconds)
        .pipe(Effect.map(shortened), Effect.catch(unknown))
  })

const processId = Schema.String.annotate({ description: "ID from process__start" })

const unknown = ({ message }: UnknownProcess) => ToolFault.refuse("validation", message)

const shortened = (process: Process): Process => ({
  ...process,
  command: Excerpt.short(process.command, commandCharactersMax)
})
