/**
 * `SessionWorkspaces` in a directory of the host: one directory for each session, named by its digest.
 *
 * This process never reads their content: it creates them, mounts them into a container, and removes them as a whole,
 * whatever their depth and permissions.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { named } from "@cogni/sandbox-core/Remedy"
import { HostFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect, Layer } from "effect"
import { chmod, chown, lstat, mkdir } from "node:fs/promises"
import { join, resolve } from "node:path"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

export interface Options {
  /** Created if it is missing. Only this process and its user should have access to it. */
  readonly directory: string
  /** Owner of a workspace if this process is root, never 0 (default 1000:1000). */
  readonly owner?: { readonly userId: number; readonly groupId: number } | undefined
}

const unusable = (path: string, thrown: unknown) =>
  HostFailed.of(
    path,
    "cannot be used",
    thrown,
    `Check the directory of the sessions' workspaces (${named("HostSessionWorkspaces.directory")}), its disk and its permissions`
  )

export const make = (options: Options) => {
  const root = resolve(options.directory)
  const owner = options.owner ?? { userId: 1000, groupId: 1000 }
  const pathOf = (sessionId: SessionId.SessionId) => join(root, SessionId.digest(sessionId))

  return SessionWorkspaces.of({
    of: (sessionId) => {
      const path = pathOf(sessionId)
      return attempt(
        async () => {
          await mkdir(root, { recursive: true, mode: 0o700 })
          let isGiven = false
          try {
            await mkdir(path, { mode: 0o700 })
          } catch (thrown) {
            if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown
            const found = await lstat(path)
            if (!found.isDirectory()) {
              throw new Error("the path exists and is not a directory", { cause: thrown })
            }
            // Root owns it only if an earlier process created it and ended before it changed the owner.
            isGiven = found.uid !== 0
          }
          // An existing directory too: an agent may have removed its own access.
          await chmod(path, 0o700)
          if (!isGiven && process.getuid?.() === 0) await chown(path, owner.userId, owner.groupId)
        },
        (_message, thrown) => unusable(path, thrown)
      ).pipe(Effect.as({ type: "directory", path, counts: "all" }))
    },
    forget: (sessionId) => {
      const path = pathOf(sessionId)
      return Effect.mapError(HostTree.remove(path), (error) => unusable(path, error))
    }
  })
}

export const layer = (options: Options): Layer.Layer<SessionWorkspaces> =>
  Layer.sync(SessionWorkspaces, () => make(options))
