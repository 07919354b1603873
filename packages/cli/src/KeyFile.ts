/**
 * Reads a secret from a file of the user: the upstream key, or a git server's token.
 *
 * The initial environment of a process stays readable as long as it lives, by root and by every process with its uid. A
 * file that only its owner can read does not appear there. Errors never contain the content.
 */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { KeyUnavailable } from "@cogni/sandbox-proxy/UpstreamKey"
import { Effect, Redacted } from "effect"
import { type Refusal, refusal } from "./Failure.ts"

/** Largest key file. No HTTP header carries a longer key. */
const keyFileBytesMax = 16 * 1024

const othersMask = 0o077

/** Refusal for a secret that is set both in a variable and in a file. */
export const refuseBoth = (variable: string): Refusal =>
  refusal(
    "configuration",
    `${variable} and ${variable}_FILE are both set`,
    `Unset ${variable}: other processes can read it for as long as this one lives`
  )

/** Returns the secret of a variable, or of the file that `VARIABLE_FILE` names. */
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

/**
 * Returns the key in a file, for a proxy that asks for it again while runs are open. So a rotated key is used without a
 * restart. A file that is missing or empty may be just being replaced.
 */
export const source = (
  path: string,
  variable: string
): Effect.Effect<Redacted.Redacted<string>, KeyUnavailable> =>
  readKey(path, variable).pipe(
    Effect.map((text) => Redacted.make(text)),
    Effect.mapError(
      ({ isTransient, refusal: { detail, remedy } }) =>
        new KeyUnavailable({ detail, remedy, isRetryable: isTransient })
    )
  )

/** Reads a whole file, without one line ending at its end. The caller must redact the text immediately. */
export const readText = (path: string, variable: string): Effect.Effect<string, Refusal> =>
  Effect.mapError(readKey(path, variable), ({ refusal: refused }) => refused)

const readKey = Effect.fnUntraced(function* (
  path: string,
  variable: string
): Effect.fn.Return<string, { readonly refusal: Refusal; readonly isTransient: boolean }> {
  const refuse = (problem: string, remedy: string, isTransient = false) => ({
    refusal: refusal("configuration", `${variable} ${path} ${problem}`, remedy),
    isTransient
  })
  const { bytes, mode = 0 } = yield* HostFile.read(path, { bytesMax: keyFileBytesMax }).pipe(
    Effect.mapError(({ detail, problem, remedy }) =>
      problem === "too_large"
        ? refuse(`is larger than ${formatBytes(keyFileBytesMax)}`, "Name a file that contains only the key")
        : problem === "not_a_file"
          ? refuse(`is not a file (it ${detail})`, "Name a file that contains only the key")
          : refuse(`cannot be read (it ${detail})`, remedy, problem === "not_found")
    )
  )
  if ((mode & othersMask) !== 0) {
    const octal = mode.toString(8).padStart(4, "0")
    return yield* Effect.fail(
      refuse(
        `is accessible to other users (mode ${octal})`,
        `Restrict it: chmod 600 ${ShellWord.quoted(path)}`
      )
    )
  }
  const key = new TextDecoder().decode(bytes).replace(/\r?\n$/u, "")
  return key === ""
    ? yield* Effect.fail(refuse("is empty", "Write only the key into it, on one line", true))
    : key
})
