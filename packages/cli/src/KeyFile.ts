/**
 * A secret from a file of the caller's: the upstream key, a token of a git server.
 *
 * What a process was started with stays readable for as long as it lives, by root and by everybody with its uid; a file
 * that only its owner reads does not show there. Nothing of the content is in what is refused.
 */
import { formatBytes } from "@cogni/sandbox-core/RunResult"
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { Effect, Redacted } from "effect"
import { type Refusal, refusal } from "./Failure.ts"

/** No header carries more. */
export const keyFileBytesMax = 16 * 1024

const othersMask = 0o077

/** A secret in a variable, and in the file that another names. */
export const refuseBoth = (variable: string): Refusal =>
  refusal(
    "configuration",
    `${variable} and ${variable}_FILE are both set`,
    `Unset ${variable}: other processes can read it for as long as this one lives`
  )

/** A secret in a variable, or in the file that `VARIABLE_FILE` names. */
export const secretOf = (
  variable: string,
  secret: Redacted.Redacted<string> | undefined,
  path: string | undefined
): Effect.Effect<Redacted.Redacted<string> | undefined, Refusal> =>
  path === undefined
    ? Effect.succeed(secret)
    : secret === undefined
      ? Effect.map(readText(path, `${variable}_FILE`), (text) => Redacted.make(text))
      : Effect.fail(refuseBoth(variable))

/** All of a file, but for one line end after it: for what is taken apart, and then redacted, at once. */
export const readText = Effect.fnUntraced(function* (
  path: string,
  variable: string
): Effect.fn.Return<string, Refusal> {
  const refuse = (problem: string, remedy: string) =>
    refusal("configuration", `${variable} ${path} ${problem}`, remedy)
  const { bytes, mode = 0 } = yield* HostFile.read(path, { bytesMax: keyFileBytesMax }).pipe(
    Effect.mapError(({ detail, problem, remedy }) =>
      problem === "too_large"
        ? refuse(`is larger than ${formatBytes(keyFileBytesMax)}`, "Name the file that holds the key alone")
        : problem === "not_a_file"
          ? refuse(`is not a file (it ${detail})`, "Name the file that holds the key alone")
          : refuse(`cannot be read (it ${detail})`, remedy)
    )
  )
  if ((mode & othersMask) !== 0) {
    const octal = mode.toString(8).padStart(4, "0")
    return yield* refuse(`is open to others (mode ${octal})`, `Close it: chmod 600 ${ShellWord.quoted(path)}`)
  }
  const key = new TextDecoder().decode(bytes).replace(/\r?\n$/u, "")
  return key === "" ? yield* refuse("is empty", "Write the key into it, alone and on one line") : key
})
