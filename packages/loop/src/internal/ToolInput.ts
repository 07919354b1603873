/** Arguments that several tools take, and how long and how large an answer may be. */
import { Schema } from "effect"

/** For what a call needs besides the command's own time: a sandbox that is opened by it, its files, its end. */
export const slackSeconds = 60

/** Of a text of so many bytes, as JSON (a control character becomes six), with what is around it. */
export const jsonBytesMax = (textBytesMax: number): number => 6 * textBytesMax + 64 * 1024

export const Command = Schema.String.check(
  Schema.makeFilter((text: string) =>
    text === "" ? "Expected a command" : text.includes("\0") ? "Expected a command without NUL" : undefined
  )
).annotate({ description: "What /bin/sh -c is given" })

export const Directory = Schema.String.annotate({
  description:
    "Where it runs, below the workspace: absolute, or relative to where commands begin when it is left out"
})

export const Environment = Schema.Record(Schema.String, Schema.String).annotate({
  description: "Variables of this command, beside those that are there"
})

export const Path = Schema.String.annotate({
  description: "Below the workspace: absolute, or relative to where commands begin"
})

/** Bounded, whatever a number can be; more than may be asked for is refused, and told. */
export const seconds = (minimum: number, maximum: number) =>
  Schema.Finite.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a value from ${minimum} to ${maximum} (seconds)` })
  )

export const count = (minimum: number, maximum: number, description: string) =>
  Schema.Int.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` })
  ).annotate({ description })
