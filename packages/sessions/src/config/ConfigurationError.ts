/**
 * Reasons why a configuration is not used: it cannot be read, or it is invalid.
 *
 * All problems are reported at once, each with line, column and key. Messages never repeat a whole value, because a
 * misplaced value may be a secret.
 */
import { Schema } from "effect"

/** Problems reported per file; the rest are counted. */
export const problemsMax = 100

/** One problem and its position. */
export const Problem = Schema.Struct({
  /** Line and column start at 1, in characters; absent if the problem concerns the whole file. */
  line: Schema.optionalKey(Schema.Int),
  column: Schema.optionalKey(Schema.Int),
  /** Such as `sandbox.memory_limit`; empty if the problem concerns no key. */
  key: Schema.String,
  message: Schema.String
})

export type Problem = typeof Problem.Type

/** The file cannot be read. */
export class ConfigurationUnreadable extends Schema.TaggedError<ConfigurationUnreadable>()(
  "ConfigurationUnreadable",
  {
    detail: Schema.String,
    remedy: Schema.String,
    /** Whether the file does not exist. */
    isAbsent: Schema.Boolean
  }
) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** The text is not a configuration. */
export class ConfigurationInvalid extends Schema.TaggedError<ConfigurationInvalid>()("ConfigurationInvalid", {
  problems: Schema.Array(Problem),
  /** Number of problems beyond {@link problemsMax}. */
  problemsOmitted: Schema.Int
}) {}

/** Rejects a configuration as a whole. */
export class ConfigurationError extends Schema.TaggedError<ConfigurationError>()("ConfigurationError", {
  /** Name of the source, as given in the options. */
  file: Schema.String,
  reason: Schema.Union([ConfigurationUnreadable, ConfigurationInvalid])
}) {
  /** One line per problem: `FILE:LINE:COL KEY: message`. */
  get lines(): ReadonlyArray<string> {
    const { file, reason } = this
    if (reason._tag === "ConfigurationUnreadable") return [`${file}: ${reason.message}`]
    const lines = reason.problems.map((problem) => `${file}:${describe(problem)}`)
    return reason.problemsOmitted === 0 ? lines : [...lines, `${file}: and ${reason.problemsOmitted} more`]
  }
  override get message(): string {
    return this.reason._tag === "ConfigurationUnreadable"
      ? `the configuration ${this.file} cannot be read: ${this.reason.message}`
      : `the configuration ${this.file} is refused: ${this.lines.join("; ")}`
  }
}

/** Formats a problem: `12:5 sandbox.memory_limit: Expected …`. */
export const describe = ({ column = 1, key, line, message }: Problem): string => {
  const place = `${line === undefined ? "" : `${line}:${column}`}${key === "" ? "" : ` ${key}`}`
  return `${place}${place === "" ? "" : ":"} ${message}`
}

/** Sorts problems in file order, and keeps the first {@link problemsMax}. */
export const invalid = (file: string, problems: ReadonlyArray<Problem>): ConfigurationError =>
  new ConfigurationError({
    file,
    reason: new ConfigurationInvalid({
      problems: problems
        .toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0))
        .slice(0, problemsMax),
      problemsOmitted: Math.max(0, problems.length - problemsMax)
    })
  })

export const unreadable = (
  file: string,
  detail: string,
  remedy: string,
  isAbsent: boolean = false
): ConfigurationError =>
  new ConfigurationError({ file, reason: new ConfigurationUnreadable({ detail, remedy, isAbsent }) })
