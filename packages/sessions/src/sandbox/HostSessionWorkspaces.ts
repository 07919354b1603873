/**
 * `SessionWorkspaces` in a directory of the host: one directory for each session, named by its digest.
 *
 * This process never reads their content: it creates them, mounts them into a container, and removes them as a whole,
 * whatever their depth and permissions.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as KeptDirectory from "@cogni/sandbox-host-files/KeptDirectory"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { named } from "@cogni/sandbox-core/Remedy"
import { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Layer } from "effect"
import { join, resolve } from "node:path"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

interface Options {
  /** Created if it is missing. Only this process and its user should have access to it. */
  readonly directory: string
  /** Owner of a workspace if this process is root, never 0 (default 1000:1000). */
  readonly owner?: KeptDirectory.Owner | undefined
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
  const pathOf = (sessionId: SessionId.SessionId) => join(root, SessionId.digest(sessionId))

  return SessionWorkspaces.of({
    of: (sessionId) => {
      const path = pathOf(sessionId)
      return attempt(
        () => KeptDirectory.acquire(path, options.owner),
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
