/** Errors of work in the state directory, which stores the records of runs. */
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import type { Effect } from "effect"

export const unusable = (path: string, message: string): WorkspaceFailed =>
  new WorkspaceFailed({
    path,
    detail: `cannot be used: ${message}`,
    remedy: "Set COGNI_STATE_DIR to a directory this user can write"
  })

/** Replaces files: an interruption waits for its end. */
export const attemptWhole = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Attempt.attemptWhole(run, (message) => unusable(path, message))

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Attempt.attempt(run, (message) => unusable(path, message))
