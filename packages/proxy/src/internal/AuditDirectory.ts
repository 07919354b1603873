/**
 * The directory of the host that a run's proxy writes its log into.
 *
 * The proxy is not trusted with more than that: what lies there is opened without following a link, and read up to a
 * bound.
 */
import { Effect, type Scope } from "effect"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import type { User } from "@cogni/sandbox-core/Posture"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as AccessLog from "../AccessLog.ts"
import * as NginxConfig from "../NginxConfig.ts"

/** More than this of a log is not read back; the file itself is whole. */
const logBytesMax = 16 * 1024 * 1024

export const logPath = (directory: string): string =>
  path.join(directory, path.basename(NginxConfig.paths.accessLog))

/** Only the proxy's user can enter it. It outlives the run where the run has a directory of its own. */
export const acquire = (
  parent: string | undefined,
  owner: User
): Effect.Effect<string, ProxyFailed, Scope.Scope> =>
  Effect.acquireRelease(
    attempt("made", async () => {
      const made =
        parent === undefined
          ? await fs.mkdtemp(path.join(os.tmpdir(), "cogni-sandbox-audit-"))
          : path.join(parent, "audit")
      if (parent !== undefined) await fs.mkdir(made, { mode: 0o700 })
      if (process.getuid?.() === 0) await fs.chown(made, owner.userId, owner.groupId)
      return made
    }),
    (made) =>
      parent === undefined
        ? Effect.promise(() => fs.rm(made, { recursive: true, force: true }).catch(() => undefined))
        : Effect.void
  )

/** What the log says so far; nothing, as long as there is none. */
export const read = (directory: string): Effect.Effect<AccessLog.AccessLog, ProxyFailed> =>
  attempt("read", async () => {
    const errors = await readBounded(path.join(directory, path.basename(NginxConfig.paths.errorLog)))
    return AccessLog.parse(await readBounded(logPath(directory)), errors)
  })

const readBounded = async (file: string): Promise<Uint8Array> => {
  const handle = await fs
    .open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    .catch((cause: NodeJS.ErrnoException) => (cause.code === "ENOENT" ? undefined : Promise.reject(cause)))
  if (handle === undefined) return new Uint8Array()
  try {
    const stat = await handle.stat()
    if (!stat.isFile()) return await Promise.reject(new TypeError("it is no file"))
    const bytes = Buffer.alloc(Math.min(stat.size, logBytesMax))
    let filled = 0
    while (filled < bytes.length) {
      const { bytesRead } = await handle.read(bytes, filled, bytes.length - filled, filled)
      if (bytesRead === 0) break
      filled += bytesRead
    }
    return bytes.subarray(0, filled)
  } finally {
    await handle.close()
  }
}

const attempt = <A>(what: "made" | "read", run: () => Promise<A>): Effect.Effect<A, ProxyFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (cause) =>
      new ProxyFailed({
        detail: `the proxy's audit cannot be ${what}: ${cause instanceof Error ? cause.message : String(cause)}`,
        remedy: "Make the run's directory writable, and see that its disk has space"
      })
  })
