/** Errors of work in the state directory, which stores the records of runs. */
import { named } from "@cogni/sandbox-core/Remedy"
import { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import type { Effect } from "effect"

export const unusable = (path: string, thrown: unknown): HostFailed =>
  HostFailed.of(
    path,
    "cannot be used",
    thrown,
    `Set ${named("FileRunStore.directory")} to a directory that this user can write to`
  )

/** Replaces or removes files: an interruption waits for its end. */
export const attemptWhole = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, HostFailed> =>
  Attempt.attemptWhole(run, (_message, thrown) => unusable(path, thrown))

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, HostFailed> =>
  Attempt.attempt(run, (_message, thrown) => unusable(path, thrown))
