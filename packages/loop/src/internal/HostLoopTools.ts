/**
 * The tools of a loop on the host: `exec`, `read` and `write`, over an executor.
 *
 * How a command or a file is refused is for the model to hear; only a sandbox that is over is no answer.
 */
import { Effect, Result, Schema } from "effect"
import { excerpt } from "../Excerpt.ts"
import type { ExecResult, Executor } from "@cogni/sandbox-core/Executor"
import type { HostTool, ToolAnswer } from "../HostLoop.ts"
import type { Channel } from "@cogni/sandbox-core/RunResult"
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as InputSchema from "./InputSchema.ts"

export const make = <I, IE>(options: {
  readonly name: string
  readonly description: string
  readonly input: Schema.Codec<I, IE>
  readonly execute: (input: I) => Effect.Effect<ToolAnswer, SandboxError>
}): HostTool => {
  const decode = Schema.decodeUnknownResult(options.input, { errors: "all", onExcessProperty: "error" })
  return {
    name: options.name,
    description: options.description,
    inputSchema: InputSchema.jsonOf(options.input),
    prepare: (input) =>
      Result.mapBoth(decode(input), {
        onFailure: InputSchema.describe,
        onSuccess: options.execute
      })
  }
}

export interface ExecutorOptions {
  readonly commandSecondsMax: number
  readonly workingDirectory: string
  readonly resultBytesMax: number
}

export const ofExecutor = (executor: Executor, options: ExecutorOptions): ReadonlyArray<HostTool> => [
  exec(executor, options),
  read(executor, options),
  write(executor, options)
]

const exec = (executor: Executor, { commandSecondsMax, resultBytesMax, workingDirectory }: ExecutorOptions) =>
  make({
    name: "exec",
    description:
      `Run a command in the workspace and get its exit code, stdout and stderr. A string is a line for /bin/sh; an ` +
      `array is a program and its arguments. There is no network, and no terminal. It is ended after timeout_seconds ` +
      `(${commandSecondsMax} by default and at most).`,
    input: Schema.Struct({
      command: Schema.Union([Schema.NonEmptyString, Schema.NonEmptyArray(Schema.String)]),
      timeout_seconds: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThan(0)))
    }),
    execute: ({ command, timeout_seconds }) =>
      executor
        .exec(command, {
          workingDirectory,
          timeoutSecondsMax: Math.min(timeout_seconds ?? commandSecondsMax, commandSecondsMax)
        })
        .pipe(
          Effect.map((result): ToolAnswer => ({
            content: tellResult(result, resultBytesMax),
            isError: false
          })),
          orAnswer(resultBytesMax)
        )
  })

const read = (executor: Executor, { resultBytesMax, workingDirectory }: ExecutorOptions) =>
  make({
    name: "read",
    description:
      "Read a text file of the workspace: all of it, or `limit` lines from line `offset` (counted from 1) on. " +
      `At most ${resultBytesMax} bytes come at one time; where there is more, it is said how to go on.`,
    input: Schema.Struct({
      path: Schema.NonEmptyString,
      offset: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1))),
      limit: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)))
    }),
    execute: ({ limit, offset, path }) =>
      executor.files.read(within(path, workingDirectory)).pipe(
        Effect.map((bytes) => tellLines(bytes, offset ?? 1, limit, resultBytesMax)),
        orAnswer(resultBytesMax)
      )
  })

const write = (executor: Executor, { resultBytesMax, workingDirectory }: ExecutorOptions) =>
  make({
    name: "write",
    description:
      "Write a text file of the workspace: the whole file, which replaces the one that is there. Its directories are made.",
    input: Schema.Struct({ path: Schema.NonEmptyString, content: Schema.String }),
    execute: ({ content, path }) =>
      executor.files.write(within(path, workingDirectory), content).pipe(
        Effect.as<ToolAnswer>({
          content: `wrote ${new TextEncoder().encode(content).byteLength} bytes`,
          isError: false
        }),
        orAnswer(resultBytesMax)
      )
  })

const within = (path: string, directory: string): string =>
  path.startsWith("/") ? path : `${directory}/${path}`

/**
 * What a command or a file alone has met. After one of these the sandbox lives on, or its end is known from the sandbox
 * itself.
 */
const ofTheCall: ReadonlySet<Reason["_tag"]> = new Set([
  "CommandTimedOut",
  "CommandRefused",
  "FileRefused",
  "InvalidSpec",
  "OutputLimitExceeded",
  "OomKilled",
  "PidsExhausted"
])

const orAnswer =
  (resultBytesMax: number) =>
  (called: Effect.Effect<ToolAnswer, SandboxError>): Effect.Effect<ToolAnswer, SandboxError> =>
    called.pipe(
      Effect.catch((error) => {
        if (!ofTheCall.has(error.reason._tag)) return Effect.fail(error)
        const output = error.partial?.output
        const said = output === undefined ? "" : tellOutput(output, resultBytesMax / 2)
        return Effect.succeed({ content: `${error.reason.message}${said}`, isError: true })
      })
    )

const tellResult = ({ durationMs, exitCode, output, signal }: ExecResult, bytesMax: number): string => {
  const ended = signal === undefined ? `exit code ${exitCode}` : `ended by ${signal}, exit code ${exitCode}`
  return `${ended}, after ${(durationMs / 1000).toFixed(1)} s${tellOutput(output, bytesMax)}`
}

/** Room for what is told around the output. */
const wordsBytesMax = 200

const tellOutput = ({ stderr, stdout }: ExecResult["output"], bytesMax: number): string => {
  const room = Math.max(0, bytesMax - wordsBytesMax)
  // What one of them does not need, the other may have.
  const stderrRoom = Math.max(room / 2, room - stdout.bytes)
  const told = tellChannel("stderr", stderr, stderrRoom)
  return `${tellChannel("stdout", stdout, room - told.length)}${told}`
}

const tellChannel = (name: string, { bytes, text, truncated }: Channel, bytesMax: number): string => {
  if (bytes === 0) return ""
  const more = truncated ? `\n[only the beginning of ${bytes} bytes was kept]` : ""
  return `\n--- ${name}\n${excerpt(text, Math.max(0, bytesMax)).text}${more}`
}

const tellLines = (
  bytes: Uint8Array,
  offset: number,
  limit: number | undefined,
  bytesMax: number
): ToolAnswer => {
  if (!isText(bytes)) {
    return {
      content: `the file is ${bytes.byteLength} bytes that are no text. Look at it with a command`,
      isError: true
    }
  }
  const { lines, start } = lineAt(bytes, offset)
  if (offset > Math.max(1, lines)) {
    return { content: `the file has ${lines} lines; offset ${offset} is after its end`, isError: true }
  }
  const room = bytesMax - wordsBytesMax
  const { end, kept } = fitting(bytes, start, Math.min(limit ?? lines, lines - offset + 1), room)
  if (kept === 0 && lines > 0) {
    return {
      content: `line ${offset} alone is longer than ${bytesMax} bytes; its beginning and end:\n${excerpt(bytes.subarray(start, lineEnd(bytes, start)), room).text}`,
      isError: false
    }
  }
  const next = offset + kept
  const rest = lines - next + 1
  const more = rest > 0 ? `\n[${rest} of ${lines} lines are left: go on with offset ${next}]` : ""
  return { content: `${decoder.decode(bytes.subarray(start, end))}${more}`, isError: false }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const isText = (bytes: Uint8Array): boolean => {
  try {
    decoder.decode(bytes)
    return true
  } catch {
    return false
  }
}

const newline = 0x0a

const lineEnd = (bytes: Uint8Array, start: number): number => {
  const end = bytes.indexOf(newline, start)
  return end === -1 ? bytes.byteLength : end
}

/** How many lines there are, and where one of them begins; a list of them could have as many entries as there are bytes. */
const lineAt = (bytes: Uint8Array, number: number) => {
  let lines = 0
  let start = 0
  for (let index = 0; index < bytes.byteLength; index++) {
    if (bytes[index] !== newline) continue
    lines += 1
    if (lines === number - 1) start = index + 1
  }
  // A line break ends a line; it begins none.
  return { lines: bytes.byteLength > 0 && bytes.at(-1) !== newline ? lines + 1 : lines, start }
}

/** As many whole lines as there is room for, at most so many; where they end, without the last line break. */
const fitting = (bytes: Uint8Array, start: number, linesMax: number, bytesMax: number) => {
  let end = start
  let kept = 0
  for (; kept < linesMax; kept++) {
    const next = lineEnd(bytes, kept === 0 ? start : end + 1)
    if (next + 1 - start > bytesMax) break
    end = next
  }
  return { end, kept }
}
