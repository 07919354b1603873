/** Arguments that several tools share, and limits on the time and size of their answers. */
import { Schema } from "effect"

/** Time that a call needs besides its command: to open the sandbox, access files and end. */
export const slackSeconds = 60

/** Returns the limit on a result with this much text as JSON, where a control character takes six bytes. */
export const jsonBytesMax = (textBytesMax: number): number => 6 * textBytesMax + 64 * 1024

export const Command = Schema.String.check(
  Schema.makeFilter((text: string) =>
    text === "" ? "Expected a command" : text.includes("\0") ? "Expected a command without NUL" : undefined
  )
).annotate({ description: "Command line for /bin/sh -c" })

export const Directory = Schema.String.annotate({
  description:
    "Working directory, inside the workspace: absolute, or relative to where commands start (the default)"
})

export const Environment = Schema.Record(Schema.String, Schema.String).annotate({
  description: "Variables of this command, in addition to the existing ones"
})

export const Path = Schema.String.annotate({
  description: "Inside the workspace: absolute, or relative to where commands start"
})

/** A finite number of seconds. A value outside the range is refused, not clamped. */
export const seconds = (minimum: number, maximum: number) =>
  Schema.Finite.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a value from ${minimum} to ${maximum} (seconds)` })
  )

export const count = (minimum: number, maximum: number, description: string) =>
  Schema.Int.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` })
  ).annotate({ description })
