/**
 * Why a configuration is not used: it cannot be read, or something in it is wrong.
 *
 * All that is wrong is said at once, each with its line, its column and its key. A value is never repeated whole: what
 * was written by mistake may be a secret.
 */
import { Schema } from "effect"

/** How many problems are told of one file; of more it is said that there are more. */
export const problemsMax = 100

/** One thing that is wrong, and where. */
export const Problem = Schema.Struct({
  /** Both from 1, in characters; absent where it is about the whole of the file. */
  line: Schema.optionalKey(Schema.Int),
  column: Schema.optionalKey(Schema.Int),
  /** Such as `sandbox.memory_limit`; empty where it is about none. */
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
    /** Nothing is there under this name. */
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
  /** Of those beyond {@link problemsMax}. */
  problemsOmitted: Schema.Int
}) {}

/** A configuration is as a whole taken or not taken. */
export class ConfigurationError extends Schema.TaggedError<ConfigurationError>()("ConfigurationError", {
  /** What it was read from, as its reader calls it. */
  file: Schema.String,
  reason: Schema.Union([ConfigurationUnreadable, ConfigurationInvalid])
}) {
  /** As `FILE:LINE:COL KEY: message`, one for each problem. */
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

/** `12:5 sandbox.memory_limit: Expected …`. */
export const describe = ({ column = 1, key, line, message }: Problem): string => {
  const place = `${line === undefined ? "" : `${line}:${column}`}${key === "" ? "" : ` ${key}`}`
  return `${place}${place === "" ? "" : ":"} ${message}`
}

/** In the order of the file, and no more than are told. */
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
