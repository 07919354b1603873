/** Reasons why a workspace cannot be used: thrown as `Refused` during the checks, returned as `WorkspaceFailed`. */
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

/** Remedies that replace those of the refusal, because here the path is a workspace. */
const remedies: Partial<Record<HostPathRefused["problem"], string>> = {
  not_found: "Create it first, or use another directory",
  not_a_directory: "Use a directory; pass single files as inputs"
}

/** Holds a directory open until the scope closes. Fails if another user could redirect its path with a link. */
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
