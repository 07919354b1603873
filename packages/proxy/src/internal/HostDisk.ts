/** Directories and sockets that the way out of a run needs on the disk of the host. */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, type Scope } from "effect"
import * as fs from "node:fs/promises"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"

/** Does something on the disk. `failure` says what cannot be done when it throws. */
export const use = <A>(
  failure: string,
  run: () => Promise<A>,
  directory = "the run's directory"
): Effect.Effect<A, ProxyFailed> =>
  attempt(
    run,
    (message) =>
      new ProxyFailed({
        detail: `${failure}: ${message}`,
        remedy: `Make ${directory} writable, and see that its disk has space`
      })
  )

/** A new directory of mode 0700, by default among the temporary files. It is removed with the scope. */
export const temporaryDirectory = (
  failure: string,
  prefix: string,
  parent?: string
): Effect.Effect<string, ProxyFailed, Scope.Scope> => {
  const where = parent ?? "the directory for temporary files"
  return Effect.acquireRelease(
    use(failure, () => OwnFiles.temporaryDirectory(prefix, parent), where),
    remove
  )
}

/** Removes a directory; nothing fails when it cannot be removed. */
export const remove = (directory: string): Effect.Effect<void> =>
  Effect.promise(() => fs.rm(directory, { recursive: true, force: true }).catch(() => undefined))
