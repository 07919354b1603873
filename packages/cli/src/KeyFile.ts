/**
 * A secret from a file of the caller's: the upstream key, a token of a git server.
 *
 * What a process was started with stays readable for as long as it lives, by root and by everybody with its uid; a file
 * that only its owner reads does not show there. Nothing of the content is in what is refused.
 */
import { Effect, FileSystem, Redacted } from "effect"
import { Refusal } from "./Failure.ts"
import { formatBytes } from "./Quantity.ts"

/** No header carries more. @category constants */
export const keyFileBytesMax = 16 * 1024

const othersMask = 0o077

/** All of the file, but for one line end after it. @category constructors */
export const read = (
  path: string,
  variable = "COGNI_LLM_KEY_FILE"
): Effect.Effect<Redacted.Redacted<string>, Refusal, FileSystem.FileSystem> =>
  Effect.map(readText(path, variable), (text) => Redacted.make(text))

/** The same, bare: for what has to be taken apart before it is redacted, and is at once. @category constructors */
export const readText = Effect.fnUntraced(function* (
  path: string,
  variable: string
): Effect.fn.Return<string, Refusal, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  const refuse = (problem: string, remedy: string) =>
    new Refusal({ exit: "configuration", detail: `${variable} ${path} ${problem}`, remedy })
  const unreadable = ({ message }: { readonly message: string }) =>
    refuse(`cannot be read (${message})`, "Check its path and permissions")
  // Looked at before it is opened: a pipe would be waited for.
  const { mode, size, type } = yield* Effect.mapError(fs.stat(path), unreadable)
  if (type !== "File") return yield* refuse("is not a file", "Name the file that holds the key alone")
  if ((mode & othersMask) !== 0) {
    const octal = (mode & 0o7777).toString(8).padStart(4, "0")
    return yield* refuse(`is open to others (mode ${octal})`, `Close it: chmod 600 ${path}`)
  }
  if (size > keyFileBytesMax) {
    return yield* refuse(
      `is larger than ${formatBytes(keyFileBytesMax)}`,
      "Name the file that holds the key alone"
    )
  }
  const key = (yield* Effect.mapError(fs.readFileString(path), unreadable)).replace(/\r?\n$/u, "")
  return key === "" ? yield* refuse("is empty", "Write the key into it, alone and on one line") : key
})
