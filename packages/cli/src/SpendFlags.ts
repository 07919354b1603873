/** The flags of `spend` and of its subcommands. */
import type { Result } from "effect"
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as NumberFlag from "./NumberFlag.ts"
import * as Quantity from "./Quantity.ts"

/** Output formats of commands with figures for spreadsheets. */
const figures = Flag.Literals("output", ["text", "json", "csv"]).pipe(
  Flag.withAlias("o"),
  Flag.withDescription(
    "Output format: text for people, json for scripts, csv for spreadsheets (default text)"
  ),
  Flag.withDefault("text")
)

/** Flag for a date or a time in UTC. `wholeDay` returns the moment that a date stands for. */
const moment = (
  name: string,
  description: string,
  wholeDay: (date: string) => Result.Result<string, string>
) =>
  Flags.orUndefined(
    Flags.parsed((typed) =>
      /^\d{4}-\d\d-\d\d$/u.test(typed) ? wholeDay(typed) : Quantity.parseMoment(typed)
    )(Flags.text(name, "DATE", description))
  )

/** Flags of `spend`. */
export const sums = {
  by: Flag.Literals("by", [
    "account",
    "user",
    "graph",
    "agent",
    "model",
    "upstream",
    "run",
    "day",
    "total"
  ]).pipe(
    Flag.withDescription("Property to sum by; a day is one of UTC (default account)"),
    Flag.withDefault("account")
  ),
  from: moment("from", "First day, such as 2026-01-31, or first moment, in UTC", (date) =>
    Quantity.parseMoment(`${date}T00:00:00Z`)
  ),
  to: moment("to", "Last day, such as 2026-01-31, or the moment before which calls began, in UTC", (date) =>
    Quantity.parseMoment(`${date}T00:00:00Z`, 1)
  ),
  account: Flags.orUndefined(Flags.text("account", "ID", "Only calls of this billing account")),
  user: Flags.orUndefined(Flags.text("user", "ID", "Only calls of this user")),
  agent: Flags.orUndefined(Flags.text("agent", "ID", "Only calls of this agent")),
  model: Flags.orUndefined(
    Flags.text("model", "NAME", "Only calls to this model, by its name at the upstream")
  ),
  limit: NumberFlag.whole(
    "limit",
    "N",
    "a whole number of rows from 1 to 10000",
    "Maximum number of rows, 1 to 10000; the most expensive come first (default 1000)"
  ).pipe(Flag.withDefault(1000)),
  output: figures
}

/** Flags of `spend explain`. */
export const explain = {
  revisions: Flags.toggle("revisions", "Include entries that were corrected later"),
  output: figures
}

/** Flags of `spend reconcile`. */
export const reconcile = {
  run: Flags.orUndefined(Flags.text("run", "RUN", "Only calls of this run: its ID, or a unique prefix")),
  from: sums.from,
  to: sums.to,
  output: Flags.output
}
