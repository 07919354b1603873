/**
 * Reasons why a workspace cannot be used: thrown as `Refused` during the checks, returned as `WorkspaceFailed`. A fault
 * of the host, such as a full disk, is `HostFailed`.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import { problemOf } from "@cogni/sandbox-core/HostFault"
import { HostFailed, WorkspaceFailed } from "@cogni/sandbox-core/SandboxReason"
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

/** Works in the workspace that the spec names. */
export const attempt = <A>(
  path: string,
  run: (signal: AbortSignal) => Promise<A>
): Effect.Effect<A, WorkspaceFailed | HostFailed> =>
  Attempt.attempt(run, (message, thrown): WorkspaceFailed | HostFailed =>
    thrown instanceof Refused
      ? new WorkspaceFailed({ path, detail: thrown.detail, remedy: thrown.remedy })
      : problemOf(thrown) === "no_space"
        ? HostFailed.of(path, "cannot be used", thrown, "Use a file system with free space")
        : new WorkspaceFailed({
            path,
            detail: `cannot be used: ${message}`,
            remedy: "Check the directory, its file system and its permissions"
          })
  )

/**
 * Works in a directory that the host created for the run. An interruption waits for its end, so that nothing appears
 * after the directory was removed.
 */
export const attemptOwn = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, HostFailed> =>
  Attempt.attemptWhole(run, (_message, thrown) =>
    HostFailed.of(
      path,
      "cannot be used",
      thrown,
      "Check the directory that it is in, its file system and its permissions"
    )
  )
