/** `core__get_current_time`: returns the host's current time. */
import { Clock, Effect, Schema } from "effect"
import * as Tool from "@cogni/sandbox-loop/Tool"

export const tool: Tool.Tool = Tool.make({
  name: "core__get_current_time",
  description: "The current time of the host, in UTC and in a time zone if one is named.",
  effect: "read_only",
  input: Schema.Struct({
    timezone: Schema.optionalKey(
      Schema.String.check(Schema.isMaxLength(64)).annotate({
        description: "An IANA time zone, such as Europe/Berlin"
      })
    )
  }),
  output: Schema.Struct({
    iso: Schema.String,
    epochMillis: Schema.Int,
    timezone: Schema.String,
    local: Schema.String
  }),
  execute: Effect.fnUntraced(function* ({ timezone = "UTC" }) {
    const epochMillis = yield* Clock.currentTimeMillis
    const local = yield* Effect.try({
      try: () =>
        new Intl.DateTimeFormat("en-CA", {
          timeZone: timezone,
          dateStyle: "short",
          timeStyle: "long",
          hourCycle: "h23"
        }).format(epochMillis),
      catch: () =>
        new Tool.ToolFailed({
          code: "validation",
          detail: `timezone: ${JSON.stringify(timezone)} does not exist. Use an IANA name, such as Europe/Berlin`
        })
    })
    return { iso: new Date(epochMillis).toISOString(), epochMillis, timezone, local }
  })
})
