/**
 * Where the words for an agent come from: the command line, a file, or standard input.
 *
 * Bounded while it is read, so that an endless input is refused and not kept.
 */
import { inputBytesMax } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, FileSystem, Stdio, Stream } from "effect"
import { Refusal } from "./Failure.ts"
import { formatBytes } from "./Quantity.ts"

/** @category models */
export type PromptSource =
  | { readonly _tag: "Text"; readonly text: string }
  | { readonly _tag: "File"; readonly path: string }
  | { readonly _tag: "Stdin" }

/** `-` is standard input. @category constructors */
export const sourceOf = (text: string): PromptSource =>
  text === "-" ? { _tag: "Stdin" } : { _tag: "Text", text }

const tooLong = new Refusal({
  exit: "input",
  detail: `the prompt is longer than ${formatBytes(inputBytesMax)}`,
  remedy: "Put long text into a file of the workspace (--workspace) and name it in the prompt"
})

const decode = (pieces: ReadonlyArray<Uint8Array>, bytes: number) =>
  Effect.try({
    try: () => {
      const joined = new Uint8Array(bytes)
      let at = 0
      for (const piece of pieces) {
        joined.set(piece, at)
        at += piece.byteLength
      }
      return new TextDecoder("utf-8", { fatal: true }).decode(joined)
    },
    catch: () =>
      new Refusal({
        exit: "input",
        detail: "the prompt is not UTF-8 text",
        remedy: "Convert it, or put it into the workspace"
      })
  })

const collect = <E>(stream: Stream.Stream<Uint8Array, E>) =>
  Effect.gen(function* () {
    const pieces: Array<Uint8Array> = []
    let bytes = 0
    yield* Stream.runForEach(stream, (piece) => {
      bytes += piece.byteLength
      pieces.push(piece)
      return bytes > inputBytesMax ? Effect.fail(tooLong) : Effect.void
    })
    return yield* decode(pieces, bytes)
  })

/** @category constructors */
export const read = Effect.fnUntraced(function* (
  source: PromptSource
): Effect.fn.Return<string, Refusal, FileSystem.FileSystem | Stdio.Stdio> {
  const fs = yield* FileSystem.FileSystem
  const stdio = yield* Stdio.Stdio
  const unreadable = (what: string) => (error: { readonly message: string }) =>
    error instanceof Refusal
      ? error
      : new Refusal({
          exit: "notFound",
          detail: `${what} cannot be read (${error.message})`,
          remedy: "Check its path and permissions"
        })
  const text = yield* source._tag === "Text"
    ? new TextEncoder().encode(source.text).byteLength > inputBytesMax
      ? Effect.fail(tooLong)
      : Effect.succeed(source.text)
    : source._tag === "File"
      ? collect(fs.stream(source.path)).pipe(Effect.mapError(unreadable(`the prompt file ${source.path}`)))
      : collect(stdio.stdin).pipe(Effect.mapError(unreadable("standard input")))
  return text.trim() === ""
    ? yield* new Refusal({
        exit: "input",
        detail: "the prompt is empty",
        remedy: "Say what is to be done"
      })
    : text
})
