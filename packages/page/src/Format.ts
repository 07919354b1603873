/** Formats figures of runs for people. Pure. An unknown figure is a dash, never 0. */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"

export const unknown = "–"

const units = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60]
] as const

/** `1.4 s`, `2 min 05 s`, `3 h 10 min`. */
export const duration = (millis: number | undefined): string => {
  if (millis === undefined || !Number.isFinite(millis) || millis < 0) return unknown
  if (millis < 1000) return `${Math.round(millis)} ms`
  const seconds = millis / 1000
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? units[2]
  const [lower, lowerSize] =
    unit === "d" ? (["h", 3600] as const) : unit === "h" ? (["min", 60] as const) : (["s", 1] as const)
  const rest = Math.floor((seconds % size) / lowerSize)
  return `${Math.floor(seconds / size)} ${unit} ${String(rest).padStart(2, "0")} ${lower}`
}

/** A place in a recording: `0:05`, `1:02:05`. */
export const timecode = (millis: number): string => {
  const seconds = Math.floor(millis / 1000)
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60]
  const rest = `${hours > 0 ? String(minutes).padStart(2, "0") : minutes}:${String(seconds % 60).padStart(2, "0")}`
  return hours > 0 ? `${hours}:${rest}` : rest
}

/** `$0.0123`: three significant digits below a dollar, and at least cents. */
export const usd = (amount: number | undefined): string => {
  if (amount === undefined || !Number.isFinite(amount)) return unknown
  if (amount > 0 && amount < 1e-8) return "<$0.00000001"
  const digits = amount === 0 ? 2 : Math.min(8, Math.max(2, 2 - Math.floor(Math.log10(Math.abs(amount)))))
  return `$${amount.toFixed(amount >= 1 ? 2 : digits).replace(/(\.\d\d\d*?)0+$/u, "$1")}`
}

/** `12,345` */
export const count = (figure: number | undefined): string =>
  figure === undefined || !Number.isFinite(figure) ? unknown : figure.toLocaleString("en-US")

/** `1.5 MiB` */
export const bytes = (size: number | undefined): string =>
  size === undefined || !Number.isSafeInteger(size) || size < 0 ? unknown : formatBytes(size)

/** `73%`, and `<1%` and `>99%` rather than a rounded 0 or 100. */
export const share = (part: number, whole: number): string => {
  if (!(whole > 0) || !Number.isFinite(part)) return unknown
  const percent = (part / whole) * 100
  if (!Number.isFinite(percent)) return unknown
  if (percent > 0 && percent < 1) return "<1%"
  if (percent > 99 && percent < 100) return ">99%"
  return `${Math.round(percent)}%`
}

const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" })
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" })

const parsed = (text: string | undefined): number | undefined => {
  const millis = text === undefined ? Number.NaN : Date.parse(text)
  return Number.isNaN(millis) ? undefined : millis
}

/** The local time of an instant: `26 Nov 2026, 04:03:39`. */
export const time = (text: string | undefined): string => {
  const millis = parsed(text)
  return millis === undefined ? unknown : clock.format(millis)
}

const steps = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1]
] as const

/** `2m ago` */
export const ago = (text: string | undefined, nowMillis: number): string => {
  const millis = parsed(text)
  if (millis === undefined) return unknown
  const seconds = Math.round((millis - nowMillis) / 1000)
  const [unit, size] = steps.find(([, size]) => Math.abs(seconds) >= size) ?? steps[3]
  return relative.format(Math.trunc(seconds / size), unit)
}

/** Milliseconds from one instant to another, or until now. */
export const between = (
  from: string | undefined,
  to: string | undefined,
  nowMillis: number
): number | undefined => {
  const begin = parsed(from)
  return begin === undefined ? undefined : Math.max(0, (parsed(to) ?? nowMillis) - begin)
}

/** JSON with line breaks, and any other text as it is. */
export const pretty = (text: string): string => {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2)
  } catch {
    return text
  }
}
