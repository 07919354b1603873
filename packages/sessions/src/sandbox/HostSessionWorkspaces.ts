/**
 * `SessionWorkspaces` in a directory of the host: one directory for each session, named by its digest.
 *
 * Nothing in them is ever looked at from here: they are made, mounted into a container, and removed as a whole, however
 * deep they were nested and whatever was closed in them.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect, Layer } from "effect"
import { chmod, chown, lstat, mkdir } from "node:fs/promises"
import { join, resolve } from "node:path"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

export interface Options {
  /** Made when it is missing. Only this process and its user should be able to enter it. */
  readonly directory: string
  /** Owner of a workspace if this process is root, never 0 (default 1000:1000). */
  readonly owner?: { readonly userId: number; readonly groupId: number } | undefined
}

const unusable = (path: string) => (message: string) =>
  new WorkspaceFailed({
    path,
    detail: `cannot be kept: ${message}`,
    remedy: "Check the directory of the sessions' workspaces, its disk and its permissions"
  })

export const make = (options: Options) => {
  const root = resolve(options.directory)
  const owner = options.owner ?? { userId: 1000, groupId: 1000 }
  const pathOf = (sessionId: SessionId.SessionId) => join(root, SessionId.digest(sessionId))

  return SessionWorkspaces.of({
    of: (sessionId) => {
      const path = pathOf(sessionId)
      return attempt(async () => {
        await mkdir(root, { recursive: true, mode: 0o700 })
        let isGiven = false
        try {
          await mkdir(path, { mode: 0o700 })
        } catch (thrown) {
          if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown
          const found = await lstat(path)
          if (!found.isDirectory()) {
            throw new Error("something else stands in its place", { cause: thrown })
          }
          // Of root it is only where whoever made it did not come to give it away.
          isGiven = found.uid !== 0
        }
        // Also of one that is there: closed by who worked in it, it would be closed for ever.
        await chmod(path, 0o700)
        if (!isGiven && process.getuid?.() === 0) await chown(path, owner.userId, owner.groupId)
      }, unusable(path)).pipe(Effect.as({ type: "directory", path, counts: "all" }))
    },
    forget: (sessionId) => {
      const path = pathOf(sessionId)
      return Effect.mapError(HostTree.remove(path), ({ message }) => unusable(path)(message))
    }
  })
}

export const layer = (options: Options): Layer.Layer<SessionWorkspaces> =>
  Layer.sync(SessionWorkspaces, () => make(options))
