/** Flags of `approvals list`, `approve` and `deny`. */
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as LimitFlag from "./LimitFlag.ts"

const deciderCharactersMax = 200

/** Flags of `approvals list`. */
export const list = {
  all: Flags.toggle("all", "Include approvals that have ended").pipe(Flag.withAlias("a")),
  account: Flags.optional("account", "ACCOUNT", "Only calls of this billing account (default all accounts)"),
  run: Flags.optional("run", "RUN", "Only calls of this run, by its whole ID (default all runs)"),
  limit: LimitFlag.limit("calls, 1 to 10000", 10_000, 1000),
  output: Flags.output
}

/** Flags of `approvals approve` and `approvals deny`. */
export const decision = {
  reason: Flags.orUndefined(
    Flags.text("reason", "TEXT", "Reason, for the audit. The agent reads it if its call is denied")
  ),
  by: Flags.text("by", "NAME", "Name of the person who decides, for the audit (default operator)").pipe(
    Flag.withDefault("operator"),
    Flag.filter(
      (typed) => typed.length > 0 && typed.length <= deciderCharactersMax,
      () => `a name of at most ${deciderCharactersMax} characters`
    )
  ),
  output: Flags.output
}
