/** Flag for the share of subagents: a part, up to 1, of what `whole` names. */
import { Option } from "effect"
import { Flag } from "effect/cli"

export const make = (whole: string) =>
  Flag.Finite("subagent-share").pipe(
    Flag.withMetavar("RATIO"),
    Flag.withDescription(`Part of ${whole} that subagents may use together, such as 0.3 (default no share)`),
    Flag.optional,
    Flag.map(Option.getOrUndefined)
  )
