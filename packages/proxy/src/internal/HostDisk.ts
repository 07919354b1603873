/** Directories and sockets on the host's disk that a run's egress needs. */
import { attemptWhole } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, type Scope } from "effect"
import * as fs from "node:fs/promises"
import { HostFailed } from "@cogni/sandbox-core/SandboxReason"

/**
 * Runs a file operation. `failure` states what failed if it throws. An interruption waits for its end, so that nothing
 * appears after the run's files were removed.
 */
export const use = <A>(
  failure: string,
  run: () => Promise<A>,
  directory = "the run's directory"
): Effect.Effect<A, HostFailed> =>
  attemptWhole(run, (_message, thrown) =>
    HostFailed.of(
      directory,
      `cannot be used: ${failure}`,
      thrown,
      "Make it writable, and make sure that its disk has free space"
    )
  )

/** Creates a directory with mode 0700, by default for temporary files. Closing the scope removes it. */
export const temporaryDirectory = (
  failure: string,
  prefix: string,
  parent?: string
): Effect.Effect<string, HostFailed, Scope.Scope> => {
  const where = parent ?? "the directory for temporary files"
  return Effect.acquireRelease(
    use(failure, () => OwnFiles.temporaryDirectory(prefix, parent), where),
    remove
  )
}

/** Removes a directory, and ignores failures. */
export const remove = (directory: string): Effect.Effect<void> =>
  Effect.promise(() => fs.rm(directory, { recursive: true, force: true }).catch(() => undefined))
