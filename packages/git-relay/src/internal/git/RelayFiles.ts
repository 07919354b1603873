/** Operations on the relay's own directories. Every failure is a failure of the relay, with the same remedy. */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { Effect } from "effect"
import { chmod, mkdir, rm } from "node:fs/promises"
import { RelayFailed } from "../../GitRelayError.ts"

export const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, RelayFailed> =>
  Attempt.attempt(run, (message) => unusable(path, message))

/** Makes, changes or removes files: an interruption waits for its end, so that nothing appears after their removal. */
export const attemptWhole = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, RelayFailed> =>
  Attempt.attemptWhole(run, (message) => unusable(path, message))

/** Creates an empty directory of the host, whose files the user of a container may read. */
export const makeOpen = (path: string) =>
  attemptWhole(path, async () => {
    await rm(path, { recursive: true, force: true })
    await mkdir(path, { mode: 0o755 })
    await chmod(path, 0o755)
  })

/** Allows the user of a container to read a file that the host created. */
export const letRead = (path: string) => attemptWhole(path, () => chmod(path, 0o644))

/** Makes a user the owner of a tree that the host created, before an agent has access. Links are not followed. */
export const giveTo = (path: string, user: { readonly userId: number; readonly groupId: number }) =>
  Effect.mapError(HostTree.giveTo(path, user), ({ message }) => unusable(path, message))

/** Removes a tree that an agent could write. */
export const removeTree = (path: string) =>
  Effect.mapError(HostTree.remove(path), ({ message }) => unusable(path, message))

/** Removes a tree that the host created and no agent could write. */
export const removeOwn = (path: string) =>
  attemptWhole(path, () => rm(path, { recursive: true, force: true }))

export const unusable = (path: string, message: string) =>
  new RelayFailed({
    detail: `${path} cannot be used: ${message}`,
    remedy: "Check the directory, its disk and its permissions"
  })
