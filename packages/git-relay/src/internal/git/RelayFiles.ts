/** Directories of the relay's own: what fails there is the relay's failure, with the same remedy everywhere. */
import { attempt as attempted } from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { Effect } from "effect"
import { chmod, mkdir, rm } from "node:fs/promises"
import { RelayFailed } from "../../GitRelayError.ts"

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, RelayFailed> =>
  attempted(run, (message) => unusable(path, message))

/** An empty directory of the host's own, whose files the user of a container may read. */
export const makeOpen = (path: string) =>
  attempt(path, async () => {
    await rm(path, { recursive: true, force: true })
    await mkdir(path, { mode: 0o755 })
    await chmod(path, 0o755)
  })

/** Lets the user of a container read a file of the host's own making. */
export const letRead = (path: string) => attempt(path, () => chmod(path, 0o644))

/** Makes a user the owner of a tree that the host made, before any agent saw it; links are not followed. */
export const giveTo = (path: string, user: { readonly userId: number; readonly groupId: number }) =>
  Effect.mapError(HostTree.giveTo(path, user), ({ message }) => unusable(path, message))

/** Removes a tree that an agent could write. */
export const removeTree = (path: string) =>
  Effect.mapError(HostTree.remove(path), ({ message }) => unusable(path, message))

/** Removes what the host made, where no agent has been. */
export const removeOwn = (path: string) => attempt(path, () => rm(path, { recursive: true, force: true }))

export const unusable = (path: string, message: string) =>
  new RelayFailed({
    detail: `${path} cannot be used: ${message}`,
    remedy: "Look at the directory, its disk and its permissions"
  })
