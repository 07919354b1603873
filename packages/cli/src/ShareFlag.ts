/** Flag for the share of subagents: a part, up to 1, of what `whole` names. */
import { Option } from "effect"
import { Flag } from "effect/cli"
import * as NumberFlag from "./NumberFlag.ts"

export const make = (whole: string) =>
  NumberFlag.number(
    "subagent-share",
    "RATIO",
    "a part above 0 and up to 1, such as 0.3",
    `Part of ${whole} that subagents may use together, such as 0.3 (default no share)`
  ).pipe(Flag.optional, Flag.map(Option.getOrUndefined))
