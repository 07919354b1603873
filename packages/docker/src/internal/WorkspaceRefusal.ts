/**
 * Why a workspace cannot be used: thrown while it is looked at, and told as `WorkspaceFailed`.
 */
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect } from "effect"

export class Refused extends Error {
  readonly remedy: string
  constructor(detail: string, remedy: string) {
    super(detail)
    this.remedy = remedy
  }
}

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (thrown) =>
      thrown instanceof Refused
        ? new WorkspaceFailed({ path, detail: thrown.message, remedy: thrown.remedy })
        : new WorkspaceFailed({
            path,
            detail: `cannot be used: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
            remedy: "Check the directory, its file system and its permissions"
          })
  })
