/**
 * The log of a command: lines for people, or one JSON object a line for a collector.
 *
 * With `json`, everything on standard error is such an object, so that a collector never meets another format.
 */
import { Cause, Clock, Effect, Logger, type LogLevel, References } from "effect"
import type { LogFormat } from "./Invocation.ts"
import { inFlags } from "./RemedyWords.ts"
import type { Output } from "./Output.ts"
import { oneLine } from "./TerminalText.ts"

/** Commands that stay until they are stopped. Their logs are the only place where an operator sees their runs. */
const staying: ReadonlySet<string> = new Set(["acp", "chat", "mcp", "serve"])

export const isStaying = (command: string | undefined): boolean =>
  command !== undefined && staying.has(command)

/** Returns the level of a log without --log-level. A command that stays logs the states of its runs. */
export const levelOf = (words: ReadonlyArray<string>): LogLevel.LogLevel =>
  isStaying(words[0]) && !words.some((word) => word === "--quiet" || word === "-q") ? "Info" : "Warn"

/** Formats one line of JSON. Annotations cannot replace the first three fields. */
const jsonLine = (
  level: LogLevel.LogLevel,
  message: string,
  millis: number,
  annotations: Readonly<Record<string, unknown>> = {}
): string =>
  `${JSON.stringify({
    ...annotations,
    time: new Date(millis).toISOString(),
    level: level.toUpperCase(),
    message
  })}\n`

/** Converts what a command prints for people on standard error to lines of JSON. */
export const inJson = (output: Output["Service"]): Output["Service"] => ({
  ...output,
  stderr: (data) =>
    Effect.flatMap(Clock.currentTimeMillis, (millis) => {
      const text = typeof data === "string" ? data : new TextDecoder().decode(data)
      const lines = text.split("\n").flatMap((line) => {
        const said = line.replace(/^· /u, "").trim()
        return said === ""
          ? []
          : [jsonLine(said.startsWith("cogni-sandbox: ") ? "Error" : "Info", said, millis)]
      })
      return lines.length === 0 ? Effect.void : output.stderr(lines.join(""))
    }),
  redraw: () => Effect.void
})

/** Writes log lines to the standard error of a command. */
export const logger = (output: Output["Service"], format: LogFormat) =>
  Logger.make<unknown, void>(({ cause, date, fiber, logLevel, message }) => {
    const words = (Array.isArray(message) ? message : [message]).map(String).join(" ")
    const reasons = cause.reasons.length === 0 ? "" : `: ${Cause.pretty(cause)}`
    const said = oneLine(`${inFlags(words)}${reasons}`)
    const text =
      format === "json"
        ? jsonLine(logLevel, said, date.getTime(), fiber.getRef(References.CurrentLogAnnotations))
        : `· ${logLevel.toLowerCase()}: ${said}\n`
    // A logger is not an Effect, so its write cannot be awaited.
    Effect.runForkWith(fiber.context)(output.stderr(text))
  })
