/**
 * Parses and formats sizes and durations. Parsing is strict: a number and a unit, without guesses.
 *
 * Pure. An error names the expected value.
 */
import { Result } from "effect"

const sizeUnits: Readonly<Record<string, number>> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 }
const durationUnits: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600 }

/** Parses a size such as `512m`, `1g` or `1.5GiB`: powers of 1024, a whole number of bytes. */
export const parseBytes = (text: string): Result.Result<number, string> => {
  const match = /^(\d{1,15}(?:\.\d{1,6})?)([kmgt])(?:i?b)?$/iu.exec(text)
  const bytes = match === null ? Number.NaN : Number(match[1]) * sizeUnits[match[2]!.toLowerCase()]!
  return Number.isSafeInteger(bytes) && bytes > 0
    ? Result.succeed(bytes)
    : Result.fail("a size above zero with its unit, such as 512m or 1g (k, m, g, t; powers of 1024)")
}

/** Parses a duration such as `90s`, `2m`, `1h` or `1h30m`: whole seconds. */
export const parseSeconds = (text: string): Result.Result<number, string> => {
  const match = /^(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?$/u.exec(text)
  const [, hours, minutes, seconds] = match ?? []
  const total =
    Number(hours ?? 0) * durationUnits["h"]! +
    Number(minutes ?? 0) * durationUnits["m"]! +
    Number(seconds ?? 0)
  return match !== null && total > 0
    ? Result.succeed(total)
    : Result.fail("a duration above zero in whole seconds with its unit, such as 90s, 2m or 1h30m")
}

/** Parses a duration that may also be zero: `0s`. */
export const parseGrace = (text: string): Result.Result<number, string> =>
  text === "0s" ? Result.succeed(0) : Result.mapError(parseSeconds(text), (expected) => `${expected}, or 0s`)

/** Parses `K=V`. The value may be empty, and may contain further `=`. */
export const parseAssignment = (
  text: string
): Result.Result<readonly [name: string, value: string], string> => {
  const at = text.indexOf("=")
  return at > 0
    ? Result.succeed([text.slice(0, at), text.slice(at + 1)])
    : Result.fail("NAME=VALUE (values are never taken from this process's environment)")
}

/** Formats a duration for people: `812 ms`, `3.4 s`, `2 m 5 s`. */
export const formatMillis = (millis: number): string => {
  if (millis < 1) return "0 ms"
  if (millis < 1000) return `${Math.round(millis)} ms`
  if (millis < 60_000) return `${(millis / 1000).toFixed(1)} s`
  const seconds = Math.round(millis / 1000)
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? `${minutes} m ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`
}

/** Formats a count with its noun: `1 call`, `2 calls`. */
export const plural = (count: number, noun: string, nouns = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : nouns}`

/** Parses a moment in UTC, and adds days to it. Returns it as `Date.toISOString` writes it. */
export const parseMoment = (text: string, days = 0): Result.Result<string, string> => {
  const written = /^(\d{4}-\d\d-\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?Z$/u.exec(text)
  const millis = Date.parse(text)
  // `Date.parse` reads 30 February as a day of March.
  return written === null ||
    !Number.isFinite(millis) ||
    new Date(millis).toISOString().slice(0, 10) !== written[1]
    ? Result.fail("a date such as 2026-01-31, or a time in UTC such as 2026-01-31T15:00:00Z")
    : Result.succeed(new Date(millis + days * 86_400_000).toISOString())
}
