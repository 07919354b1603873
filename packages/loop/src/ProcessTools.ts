/**
 * `process.*`: what a model does with the processes of its session.
 *
 * The table belongs to the session and ends with it; the tools are over it, and over nothing else. An id that names no
 * process is `validation`; a process that has ended is a result, however it is asked about.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { SignalName } from "@cogni/sandbox-core/Executor"
import { Effect, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import { Process, type ProcessTable, type UnknownProcess } from "./ProcessTable.ts"
import * as Tool from "./Tool.ts"

export interface ProcessToolsOptions extends ToolPath.PlaceOptions {}

const { workingDirectory: _, ...said } = Process.fields

const wireNames = {
  processId: "process_id",
  exitCode: "exit_code",
  startedAt: "started_at",
  endedAt: "ended_at",
  outputBytes: "output_bytes"
} as const

/** What is said of a process; of its command, the beginning. */
export const ProcessState = Schema.Struct(said).pipe(Schema.encodeKeys(wireNames))

const ProcessOutput = Schema.Struct({
  ...said,
  text: Schema.String,
  /** Of what was asked for: forgotten, or too much for one answer. */
  droppedBytes: Schema.Int,
  nextByte: Schema.Int
}).pipe(Schema.encodeKeys({ ...wireNames, droppedBytes: "dropped_bytes", nextByte: "next_byte" }))

/** Of a log, in the result: its end is kept. */
const outputBytesMax = 30_000

/** Of a `process.wait` that names none, and the longest that one may name. */
const waitSeconds = 30
const waitSecondsMax = 300

const commandCharactersMax = 200

/** `executor` is the one that the table was made over. */
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
      `Start a command with /bin/sh -c that goes on while you do other things, such as a server or a watcher. It ends ` +
      `with the session. Read what it prints with process__logs.`,
    effect: "state_change",
    input: Schema.Struct({
      command: ToolInput.Command,
      cwd: Schema.optionalKey(ToolInput.Directory),
      env: Schema.optionalKey(ToolInput.Environment),
      name: Schema.optionalKey(
        Schema.String.check(
          Schema.isPattern(/^[^\p{C}]{1,64}$/u, { expected: "1 to 64 characters without control characters" })
        ).annotate({ description: "For your own use; ids are given" })
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
    description: "The processes of this session: those that run, and those that ended not long ago.",
    effect: "read_only",
    input: Schema.Struct({
      state: Schema.optionalKey(
        Process.fields.state.annotate({ description: "Only those; all of them when left out" })
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
      "The end of what a process has printed, standard output and standard error as they came. Give the next_byte of " +
      "one answer as after_byte to see only what came since.",
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
      "Send a signal to a process and all its children: SIGTERM asks it to end, SIGKILL ends it. One that has ended " +
      "already is told as such.",
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
    description: `Wait until a process has ended, for timeout_seconds (${waitSeconds} when left out, ${waitSecondsMax} at most). Its state is "running" where it has not.`,
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

const processId = Schema.String.annotate({ description: "As process__start gave it" })

const unknown = ({ message }: UnknownProcess) => ToolFault.refuse("validation", message)

const shortened = (process: Process): Process => ({
  ...process,
  command: Excerpt.short(process.command, commandCharactersMax)
})
