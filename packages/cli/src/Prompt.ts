/**
 * Reads a prompt from the command line, a file, or standard input.
 *
 * The size is checked while reading, so that endless input is refused instead of filling memory.
 */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import { inputBytesMax } from "@cogni/sandbox-core/SpecFields"
import { Effect, Result, Stdio, Stream } from "effect"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import * as UserFiles from "./UserFiles.ts"

export type PromptSource =
  | { readonly _tag: "Text"; readonly text: string }
  | { readonly _tag: "File"; readonly path: string }
  | { readonly _tag: "Stdin" }

/** Returns the source of the prompt, if there is one; `-` is standard input. */
export const sourceOf = ({
  prompt,
  promptFile
}: {
  readonly prompt?: string | undefined
  readonly promptFile?: string | undefined
}): Result.Result<PromptSource | undefined, Refusal> => {
  if (prompt !== undefined && promptFile !== undefined) {
    return refuse("usage", "there are two prompts", "Leave one of them out")
  }
  if ((prompt ?? promptFile) === "-") return Result.succeed({ _tag: "Stdin" })
  if (promptFile !== undefined) return Result.succeed({ _tag: "File", path: promptFile })
  return Result.succeed(prompt === undefined ? undefined : { _tag: "Text", text: prompt })
}

const tooLong = refusal(
  "input",
  `the prompt is longer than ${formatBytes(inputBytesMax)}`,
  "Put long text into a file of the workspace (--workspace) and name it in the prompt"
)

const decode = (bytes: Uint8Array) =>
  Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => refusal("input", "the prompt is not UTF-8 text", "Convert it, or put it into the workspace")
  })

const fromStdin = (stdin: Stdio.Stdio["stdin"]) =>
  stdin.pipe(
    Stream.mapError(({ message }) =>
      refusal("notFound", `standard input cannot be read (${message})`, "Check what it is connected to")
    ),
    Stream.limitBytes(inputBytesMax, () => Stream.fail(tooLong)),
    Stream.mkUint8Array,
    Effect.flatMap(decode)
  )

/** Reads a regular file, through no link that an agent could have created, or a pipe of the user's shell (`<(…)`). */
const fromFile = (path: string, workspace: string | undefined) =>
  UserFiles.read(path, "the prompt file", { bytesMax: inputBytesMax, streams: true, workspace }).pipe(
    Effect.catchIf(
      ({ reason }) => reason === "too_large",
      () => Effect.fail(tooLong)
    ),
    Effect.flatMap(({ bytes }) => decode(bytes))
  )

/** Reads a prompt. Follows no link in the workspace. */
export const read = Effect.fnUntraced(function* (
  source: PromptSource,
  workspace?: string
): Effect.fn.Return<string, Refusal, Stdio.Stdio> {
  const stdio = yield* Stdio.Stdio
  const text = yield* source._tag === "Text"
    ? new TextEncoder().encode(source.text).byteLength > inputBytesMax
      ? Effect.fail(tooLong)
      : Effect.succeed(source.text)
    : source._tag === "File"
      ? fromFile(source.path, workspace)
      : fromStdin(stdio.stdin)
  return text.trim() === "" ? yield* refusal("input", "the prompt is empty", "Describe the task") : text
})
