/** Why a workspace cannot be used: thrown while it is looked at, and told as `WorkspaceFailed`. */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect, Schema, type Scope } from "effect"

export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  detail: Schema.String,
  remedy: Schema.String
}) {}

export const refused = (detail: string, remedy: string): Refused => new Refused({ detail, remedy })

/** What to do where the path of a workspace will not do; otherwise the refusal says it. */
const remedies: Partial<Record<HostPathRefused["problem"], string>> = {
  not_found: "Make it first, or name another directory",
  not_a_directory: "Name a directory; single files can be inputs"
}

/** Hold a directory until the scope closes; refused where somebody else could have linked its path to another. */
export const hold = (
  path: string,
  options?: HeldDirectory.HoldOptions
): Effect.Effect<HeldDirectory.HeldDirectory, WorkspaceFailed, Scope.Scope> =>
  HeldDirectory.hold(path, options).pipe(
    Effect.mapError(
      ({ detail, problem, remedy }) =>
        new WorkspaceFailed({ path, detail, remedy: remedies[problem] ?? remedy })
    )
  )

export const attempt = <A>(
  path: string,
  run: (signal: AbortSignal) => Promise<A>
): Effect.Effect<A, WorkspaceFailed> =>
  Attempt.attempt(run, (message, thrown) =>
    thrown instanceof Refused
      ? new WorkspaceFailed({ path, detail: thrown.detail, remedy: thrown.remedy })
      : new WorkspaceFailed({
          path,
          detail: `cannot be used: ${message}`,
          remedy: "Check the directory, its file system and its permissions"
        })
  )
