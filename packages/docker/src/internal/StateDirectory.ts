/** Work in the directory that keeps what is known of runs, and whose fault it is when that fails. */
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect } from "effect"

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (thrown) =>
      new WorkspaceFailed({
        path,
        detail: `cannot be used: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
        remedy: "Set COGNI_STATE_DIR to a directory this user can write"
      })
  })
