/**
 * A strict reader of asciicast v3, by its published description, to check what others only guess.
 *
 * https://docs.asciinema.org/manual/asciicast/v3/
 */

export interface CastEvent {
  /** Seconds since the event before. */
  readonly interval: number
  readonly code: "o" | "i" | "m" | "r" | "x"
  readonly data: string
}

export interface Cast {
  readonly header: {
    readonly version: 3
    readonly term: { readonly cols: number; readonly rows: number; readonly type?: string }
    readonly timestamp?: number
    readonly title?: string
  }
  readonly events: ReadonlyArray<CastEvent>
}

const must = (holds: boolean, what: string): void => {
  if (!holds) throw new Error(`not an asciicast v3 file: ${what}`)
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const isSize = (value: unknown) =>
  Number.isInteger(value) && (value as number) > 0 && (value as number) < 65_536

const headerOf = (line: string): Cast["header"] => {
  const header: unknown = JSON.parse(line)
  if (!isRecord(header) || !isRecord(header["term"])) throw new Error(`no header: ${line.slice(0, 100)}`)
  const { term, timestamp, title, version } = header
  must(version === 3, `version ${String(version)}`)
  must(isRecord(term) && isSize(term["cols"]) && isSize(term["rows"]), "no size")
  must(timestamp === undefined || Number.isInteger(timestamp), "a timestamp that is no integer")
  must(title === undefined || typeof title === "string", "a title that is no text")
  return header as unknown as Cast["header"]
}

/** Format of the data of each event. */
const forms: Readonly<Record<CastEvent["code"], RegExp>> = {
  o: /^/u,
  i: /^/u,
  m: /^/u,
  r: /^[1-9]\d*x[1-9]\d*$/u,
  x: /^\d+$/u
}

const eventOf = (line: string): CastEvent => {
  const event: unknown = JSON.parse(line)
  if (!Array.isArray(event) || event.length !== 3) throw new Error(`no event: ${line.slice(0, 100)}`)
  const [interval, code, data] = event as ReadonlyArray<unknown>
  if (typeof interval !== "number" || typeof data !== "string")
    throw new Error(`no event: ${line.slice(0, 100)}`)
  must(Number.isFinite(interval) && interval >= 0, `interval ${interval}`)
  if (typeof code !== "string" || !(code in forms)) throw new Error(`unknown code: ${String(code)}`)
  must(forms[code as CastEvent["code"]].test(data), `data of ${code}: ${data.slice(0, 100)}`)
  must(data.isWellFormed(), "half a character")
  return { interval, code: code as CastEvent["code"], data }
}

/** Reads a whole file, or throws at its first mistake. */
export const parse = (file: Uint8Array | string): Cast => {
  const text = typeof file === "string" ? file : new TextDecoder("utf-8", { fatal: true }).decode(file)
  must(text.endsWith("\n"), "an incomplete line at the end")
  const [first = "", ...rest] = text.slice(0, -1).split("\n")
  const events = rest.filter((line) => !line.startsWith("#")).map(eventOf)
  must(
    events.every(({ code }, at) => code !== "x" || at === events.length - 1),
    "an event after the exit"
  )
  return { header: headerOf(first), events }
}

/** Returns the output of a recording, without the carriage returns that a terminal adds to line feeds. */
export const outputOf = ({ events }: Cast): string =>
  events
    .map(({ code, data }) => (code === "o" ? data : ""))
    .join("")
    .replaceAll("\r\n", "\n")

export const markersOf = ({ events }: Cast): ReadonlyArray<string> =>
  events.flatMap(({ code, data }) => (code === "m" ? [data] : []))
