/**
 * What was typed, as far as it matters before it is parsed.
 *
 * Pure. What follows `--` is another program's command line and is never looked into; how errors are to be told must
 * be known even where the rest cannot be understood.
 */

/** For people, or for scripts. */
export type OutputFormat = "text" | "json"

export interface Invocation {
  /** Up to `--`. */
  readonly words: ReadonlyArray<string>
  /** After `--`; absent where there is none. */
  readonly operands: ReadonlyArray<string> | undefined
  readonly format: OutputFormat
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
    debug: ["all", "trace", "debug"].includes(valueOf(/^--log-level$/u) ?? "")
  }
}
