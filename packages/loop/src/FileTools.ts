/**
 * `file.*`: text files of a session's workspace.
 *
 * If the executor refuses a path (outside the workspace, a FIFO, a device, too large), the model learns what to do
 * instead. A binary file is reported as such, and its content is not returned.
 */
import { type Executor } from "@cogni/sandbox-core/Executor"
import { FileType } from "@cogni/sandbox-core/ExecutorValues"
import { Effect, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolLines from "./internal/ToolLines.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import * as Tool from "./Tool.ts"

export interface FileToolsOptions extends ToolPath.PlaceOptions {
  /** Limit on the text of a file, or on a list, in the result (default 50,000). */
  readonly outputBytesMax?: number | undefined
  /** Lines of a file per call, unless the call has a `limit` (default 2000). */
  readonly linesMax?: number | undefined
}

/** Result of `file.read`. */
const FileText = Schema.Struct({
  path: Schema.String,
  /** Empty if the file is binary. */
  text: Schema.String,
  binary: Schema.Boolean,
  /** Size of the whole file; `lines` also counts the whole file. */
  bytes: Schema.Int,
  lines: Schema.Int,
  /** Number of the first line in `text`; `lines_shown` counts its lines. */
  first_line: Schema.Int,
  lines_shown: Schema.Int,
  /** Whether the middle of a line was removed. */
  truncated: Schema.Boolean,
  /** Offset of the next line; absent at the end of the file. */
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
      `Read a text file: ${linesMax} lines from the first, or limit lines from line offset. Continue at next_offset. ` +
      `At most ${outputBytesMax} bytes are returned; a longer line loses its middle.`,
    effect: "read_only",
    input: Schema.Struct({
      path: ToolInput.Path,
      offset: Schema.optionalKey(
        ToolInput.count(1, Number.MAX_SAFE_INTEGER, "The first line to return, from 1")
      ),
      limit: Schema.optionalKey(ToolInput.count(1, 1_000_000, "How many lines to return"))
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
    description: "Write a text file, replacing any existing content. Creates missing directories.",
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
    description: "List a directory, sorted by name. If entries are omitted, truncated is true.",
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
