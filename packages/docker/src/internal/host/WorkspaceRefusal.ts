/** Why a workspace cannot be used: thrown while it is looked at, and told as `WorkspaceFailed`. */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect, type Scope } from "effect"

export class Refused extends Error {
  readonly remedy: string
  constructor(detail: string, remedy: string) {
    super(detail)
    this.remedy = remedy
  }
}

/** The same refusal as any other of a workspace. */
const ofPath = ({ detail, problem, remedy }: HostPathRefused): Refused => {
  switch (problem) {
    case "not_found":
      return new Refused(detail, "Make it first, or name another directory")
    case "not_a_directory":
      return new Refused(detail, "Name a directory; single files can be inputs")
    default:
      return new Refused(detail, remedy)
  }
}

/** Hold a directory until the scope closes; refused where somebody else could have linked its path to another. */
export const hold = (
  path: string,
  options?: HeldDirectory.HoldOptions
): Effect.Effect<HeldDirectory.HeldDirectory, WorkspaceFailed, Scope.Scope> =>
  HeldDirectory.hold(path, options).pipe(
    Effect.mapError((refused) => {
      const { message, remedy } = ofPath(refused)
      return new WorkspaceFailed({ path, detail: message, remedy })
    })
  )

export const attempt = <A>(
  path: string,
  run: (signal: AbortSignal) => Promise<A>
): Effect.Effect<A, WorkspaceFailed> =>
  Attempt.attempt(run, (message, thrown) =>
    thrown instanceof Refused
      ? new WorkspaceFailed({ path, detail: message, remedy: thrown.remedy })
      : new WorkspaceFailed({
          path,
          detail: `cannot be used: ${message}`,
          remedy: "Check the directory, its file system and its permissions"
        })
  )
