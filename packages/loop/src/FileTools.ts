/**
 * `file.*`: text files of a session's workspace.
 *
 * What the executor refuses (a way out of the workspace, a FIFO, a device, too large a file) is told to the model with
 * what to do instead. A file that is no text is said to be none, and never dumped.
 */
import { type Executor, FileType } from "@cogni/sandbox-core/Executor"
import { Effect, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolLines from "./internal/ToolLines.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import * as Tool from "./Tool.ts"

export interface FileToolsOptions extends ToolPath.PlaceOptions {
  /** Of a file, or a list, in the result (50,000). */
  readonly outputBytesMax?: number | undefined
  /** Of a file, where `limit` is left out (2000). */
  readonly linesMax?: number | undefined
}

/** What `file.read` gives. */
export const FileText = Schema.Struct({
  path: Schema.String,
  /** Empty where the file is binary. */
  text: Schema.String,
  binary: Schema.Boolean,
  /** Of the file. */
  bytes: Schema.Int,
  lines: Schema.Int,
  /** Of `text`: the number of its first line, and how many it has. */
  first_line: Schema.Int,
  lines_shown: Schema.Int,
  /** Whether a line was cut: its middle is not there. */
  truncated: Schema.Boolean,
  /** Where to go on; absent at the file's end. */
  next_offset: Schema.optionalKey(Schema.Int)
})

export const make = (
  executor: Pick<Executor, "files" | "workspace">,
  options: FileToolsOptions = {}
): ReadonlyArray<Tool.Tool> => {
  const { linesMax = 2000, outputBytesMax = 50_000 } = options
  const places = { ...options, workspace: executor.workspace }
  return [
    read(executor, places, outputBytesMax, linesMax),
    write(executor, places),
    list(executor, places, outputBytesMax)
  ]
}

type Files = Pick<Executor, "files">

const read = ({ files }: Files, places: ToolPath.Places, outputBytesMax: number, linesMax: number) =>
  Tool.make({
    name: "file__read",
    description:
      `Read a text file: ${linesMax} lines from the first on, or limit lines from line offset on. Go on at next_offset. ` +
      `At most ${outputBytesMax} bytes are given at once; a longer line loses its middle.`,
    effect: "read_only",
    input: Schema.Struct({
      path: ToolInput.Path,
      offset: Schema.optionalKey(
        ToolInput.count(1, Number.MAX_SAFE_INTEGER, "The first line to give, from 1")
      ),
      limit: Schema.optionalKey(ToolInput.count(1, 1_000_000, "How many lines to give"))
    }),
    output: FileText,
    runtimeSecondsMax: ToolInput.slackSeconds,
    resultBytesMax: ToolInput.jsonBytesMax(outputBytesMax),
    execute: (asked) =>
      Effect.gen(function* () {
        const path = yield* ToolPath.at("path", asked.path, places)
        const bytes = yield* files.read(path.inside).pipe(ToolFault.told(path))
        const { offset = 1, limit = linesMax } = asked
        return { path: path.shown, ...ToolLines.read(bytes, { offset, limit, outputBytesMax }) }
      })
  })

const write = ({ files }: Files, places: ToolPath.Places) =>
  Tool.make({
    name: "file__write",
    description: "Write a text file, in place of what there was. Makes the directories it lies in.",
    effect: "state_change",
    input: Schema.Struct({ path: ToolInput.Path, content: Schema.String }),
    output: Schema.Struct({ path: Schema.String, bytes: Schema.Int }),
    runtimeSecondsMax: ToolInput.slackSeconds,
    execute: ({ content, path: given }) =>
      Effect.gen(function* () {
        const path = yield* ToolPath.at("path", given, places)
        const bytes = new TextEncoder().encode(content)
        yield* files.write(path.inside, bytes).pipe(ToolFault.told(path))
        return { path: path.shown, bytes: bytes.byteLength }
      })
  })

const list = ({ files }: Files, places: ToolPath.Places, outputBytesMax: number) =>
  Tool.make({
    name: "file__list",
    description: "What is in a directory, by name. Where not all of it is given, truncated is true.",
    effect: "read_only",
    input: Schema.Struct({ path: Schema.optionalKey(ToolInput.Path) }),
    output: Schema.Struct({
      path: Schema.String,
      entries: Schema.Array(
        Schema.Struct({
          name: Schema.String,
          type: FileType,
          bytes: Schema.Int,
          modified_at: Schema.String
        })
      ),
      entries_total: Schema.Int,
      truncated: Schema.Boolean
    }),
    runtimeSecondsMax: ToolInput.slackSeconds,
    resultBytesMax: ToolInput.jsonBytesMax(outputBytesMax),
    execute: ({ path: given }) =>
      Effect.gen(function* () {
        const path = yield* ToolPath.at("path", given, places)
        const all = yield* files.list(path.inside).pipe(ToolFault.told(path))
        const entries = []
        let bytes = 0
        for (const { modifiedAt, name, type, bytes: size } of all) {
          const entry = { name, type, bytes: size, modified_at: modifiedAt }
          bytes += Excerpt.bytesOf(JSON.stringify(entry)) + 1
          if (bytes > outputBytesMax) break
          entries.push(entry)
        }
        return {
          path: path.shown,
          entries,
          entries_total: all.length,
          truncated: entries.length < all.length
        }
      })
  })
