/**
 * Reads the parts of a command line that are needed before it is parsed.
 *
 * Pure. Words after `--` are another program's command line and are never interpreted. The format of errors must be
 * known even if the rest of the command line is invalid.
 */

/** `text` is for people, `json` for scripts. */
export type OutputFormat = "text" | "json"

/** `text` is for people, `json` for collectors of logs. */
export type LogFormat = "text" | "json"

export interface Invocation {
  /** Words before `--`. */
  readonly words: ReadonlyArray<string>
  /** Words after `--`; `undefined` without a `--`. */
  readonly operands: ReadonlyArray<string> | undefined
  readonly format: OutputFormat
  /** Format of the log on standard error. */
  readonly logFormat: LogFormat
  readonly debug: boolean
}

export const make = (argv: ReadonlyArray<string>): Invocation => {
  const at = argv.indexOf("--")
  const words = at === -1 ? argv : argv.slice(0, at)
  const valueOf = (flag: RegExp) => {
    const index = words.findLastIndex((word) => flag.test(word.split("=")[0]!))
    const [, ...inWord] = words[index]?.split("=") ?? []
    return index === -1 ? undefined : inWord.length > 0 ? inWord.join("=") : words[index + 1]
  }
  return {
    words,
    operands: at === -1 ? undefined : argv.slice(at + 1),
    format: valueOf(/^(?:--output|-[a-z]*o)$/u) === "json" ? "json" : "text",
    logFormat: valueOf(/^--log-format$/u) === "json" ? "json" : "text",
    debug: ["all", "trace", "debug"].includes(valueOf(/^--log-level$/u) ?? "")
  }
}
