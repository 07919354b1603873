/** The flags of `task`: those of `run` that mean the same, and its own. */
import { Option } from "effect"
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"

const {
  callsMax,
  canaries,
  costUsdMax,
  cpus,
  demo,
  diskBytes,
  image,
  inputTokensMax,
  memoryBytes,
  model,
  output,
  outputTokensMax,
  processes,
  promptFile,
  quiet,
  runId,
  workspace
} = Flags.run

const orUndefined = <A>(flag: Flag.Flag<A>): Flag.Flag<A | undefined> =>
  Flag.map(Flag.optional(flag), Option.getOrUndefined)

export const task = {
  workspace,
  model,
  promptFile,
  stepsMax: orUndefined(Flags.whole("steps-max", 1, 10_000, "Answers of the model (50)")),
  patch: Flags.patch(
    "Write what changed into a file outside of the workspace, instead of to standard output"
  ),
  timeoutSeconds: Flags.duration("timeout", "Wall clock, such as 90s or 2h (30m)"),
  memoryBytes,
  cpus,
  processes,
  diskBytes,
  image,
  runId,
  callsMax,
  inputTokensMax,
  outputTokensMax,
  costUsdMax,
  canaries,
  demo,
  output,
  quiet
}
