/** The flags of commands that can let sandboxes wait, and what does not go with them. */
import * as PoolPolicy from "@cogni/sandbox-core/PoolPolicy"
import { Effect } from "effect"
import { Flag } from "effect/cli"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as NumberFlag from "./NumberFlag.ts"
import * as Output from "./Output.ts"

const takes = "a whole number of sandboxes, 0 or more, such as 8"

const pool = (description: string) =>
  Flags.orUndefined(
    NumberFlag.whole("pool", "COUNT", takes, `${description} (see doctor)`).pipe(
      Flag.filter(
        (typed) => typed >= 0,
        () => takes
      )
    )
  )

const memory = (counted: string) =>
  Flags.size(
    "pool-memory",
    "Memory of all waiting sandboxes, such as 4g (default 1g, or 16m for each of --pool if that is more). " +
      `One counts as ${counted}`
  )

const loaded = memory("16m, or as its loaded agent: OpenClaw as 391m")
const empty = memory("16m")

export const serve = {
  pool: pool(
    "Sandboxes that wait for runs, at most; those that nothing asked for in the last 10 minutes are removed; each takes " +
      "16m, or what its loaded agent takes (default 0: none). Runs in directories, clones and threads get one only if " +
      "root starts this"
  ),
  poolMemoryBytes: loaded
}

export const acp = {
  pool: pool(
    "Sandboxes that wait for the next prompt, at most, after the first one; 1 is enough for one session; each takes " +
      "16m, or what its loaded agent takes (default 0: none). For another user than root, all prompts start cold"
  ),
  poolMemoryBytes: loaded
}

export const chat = {
  pool: pool(
    "Sandboxes that wait for new sessions, exactly this many from the start on; each takes 16m (default 0: none). " +
      "Sessions with kept files get one only if root starts this"
  ),
  poolMemoryBytes: empty
}

export const mcp = {
  pool: pool(
    "Sandboxes that wait for the first call, and for the first after an idle time, exactly this many from the start " +
      "on; 1 is enough; each takes 16m (default 0: none). With --workspace, only if root starts this"
  ),
  poolMemoryBytes: empty
}

type Given = Partial<Flags.Typed<typeof serve>> & { readonly canaries: "off" | "warn" | "stop" }

/** Refuses a size of no pool or for no sandbox, and warns of a pool that no run can use. */
export const checked = ({
  canaries,
  pool = 0,
  poolMemoryBytes
}: Given): Effect.Effect<void, Refusal, Output.Output> =>
  pool === 0 && poolMemoryBytes !== undefined
    ? Effect.fail(
        refusal(
          "usage",
          "--pool-memory has no effect without --pool",
          "Add --pool 1 or more, or leave it out"
        )
      )
    : poolMemoryBytes !== undefined && poolMemoryBytes < PoolPolicy.sandboxBytes
      ? Effect.fail(
          refusal(
            "usage",
            "--pool-memory holds no sandbox: one needs at least 16m",
            "Use 16m for each of --pool, and more for agents whose code is loaded, or leave it out"
          )
        )
      : pool !== 0 && canaries !== "off"
        ? Output.note(
            "warning: no run uses a sandbox of --pool with --canaries, because canaries are mounted at its start. " +
              "Leave one of them out"
          )
        : Effect.void
