/**
 * `SessionWorkspaces` in a directory of the host: one directory for each session, named by its digest.
 *
 * Nothing in them is ever looked at from here: they are made, mounted into a container, and removed as a whole, however
 * deep they were nested and whatever was closed in them.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect, Layer } from "effect"
import { randomUUID } from "node:crypto"
import { chmod, chown, lstat, mkdir, readdir, rm, rmdir, unlink } from "node:fs/promises"
import { join, resolve } from "node:path"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

export interface Options {
  /** Made when it is missing. Only this process and its user should be able to enter it. */
  readonly directory: string
  /** Whom a workspace belongs to where this process is root; uid and gid, never 0. */
  readonly owner?: { readonly userId: number; readonly groupId: number } | undefined
}

const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (thrown) =>
      new WorkspaceFailed({
        path,
        detail: `cannot be kept: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
        remedy: "Check the directory of the sessions' workspaces, its disk and its permissions"
      })
  })

export const make = (options: Options) => {
  const root = resolve(options.directory)
  const owner = options.owner ?? { userId: 1000, groupId: 1000 }
  const pathOf = (sessionId: SessionId.SessionId) => join(root, SessionId.digest(sessionId))

  return SessionWorkspaces.of({
    of: (sessionId) => {
      const path = pathOf(sessionId)
      return attempt(path, async () => {
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
      }).pipe(Effect.as({ type: "directory", path, counts: "all" }))
    },
    forget: (sessionId) => attempt(pathOf(sessionId), () => remove(pathOf(sessionId)))
  })
}

export const layer = (options: Options): Layer.Layer<SessionWorkspaces> =>
  Layer.sync(SessionWorkspaces, () => make(options))

/** No tree that an agent has made can keep itself. Whoever could still write to it has ended. */
const remove = async (path: string): Promise<void> => {
  try {
    await rm(path, { recursive: true, force: true })
  } catch {
    await removeFlat(path)
  }
}

/**
 * A tree whose paths are longer than any path may be, or whose directories are closed to their own owner: each
 * directory is taken out of its parent before it is looked into, so that none is ever deeper than two steps.
 */
const removeFlat = async (path: string): Promise<void> => {
  const heap = `${path}.removed`
  await mkdir(heap, { recursive: true, mode: 0o700 })
  await OwnFiles.move(path, join(heap, randomUUID()))
  const pending = (await readdir(heap)).map((name) => join(heap, name))
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    await chmod(directory, 0o700)
    // Names are bytes, which need not be text.
    for (const entry of await readdir(directory, { encoding: "buffer", withFileTypes: true })) {
      const inner = Buffer.concat([Buffer.from(`${directory}/`), entry.name])
      if (!entry.isDirectory()) await unlink(inner)
      else {
        const taken = join(heap, randomUUID())
        await chmod(inner, 0o700)
        await OwnFiles.move(inner, taken)
        pending.push(taken)
      }
    }
    await rmdir(directory)
  }
  await rmdir(heap)
}
