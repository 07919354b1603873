/**
 * The directory of the host that a run's proxy writes its log into.
 *
 * The proxy is not trusted with more than that: what lies there is opened without following a link, read once and
 * in pieces, and never waited upon to have an end.
 */
import { runEntries } from "@cogni/sandbox-host-files/StateDirectory"
import { Duration, Effect, type Scope, Semaphore } from "effect"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { User } from "@cogni/sandbox-core/Posture"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as HostDisk from "../HostDisk.ts"
import * as AccessLog from "./AccessLog.ts"
import * as NginxConfig from "./NginxConfig.ts"

export const logPath = (directory: string): string =>
  path.join(directory, path.basename(NginxConfig.paths.accessLog))

/** Only the proxy's user can enter it. It outlives the run where the run has a directory of its own. */
export const acquire = Effect.fnUntraced(function* (
  parent: string | undefined,
  owner: User
): Effect.fn.Return<string, ProxyFailed, Scope.Scope> {
  const failure = "the proxy's audit cannot be made"
  const directory =
    parent === undefined
      ? yield* HostDisk.temporaryDirectory(failure, "cogni-sandbox-audit-")
      : path.join(parent, runEntries.audit)
  // Interrupted halfway, it could appear after its run has ended, or belong to root.
  yield* Effect.uninterruptible(
    HostDisk.use(failure, async () => {
      if (parent !== undefined) await fs.mkdir(directory, { mode: 0o700 })
      if (process.getuid?.() === 0) await fs.chown(directory, owner.userId, owner.groupId)
    })
  )
  return directory
})

/** A run's own two logs, as they grow. */
export interface Audit {
  /** What the log says so far; nothing, as long as there is none. */
  readonly read: Effect.Effect<AccessLog.AccessLog, ProxyFailed>
  /**
   * Never succeeds; fails when a log is about to be full, was cut, or cannot be looked at. nginx answers a call before
   * it writes it down, and dies of a full log only then.
   */
  readonly failure: Effect.Effect<never, ProxyFailed>
}

/** Follow the logs in this directory. */
export const follow = Effect.fnUntraced(function* (
  directory: string,
  /** Of each log. */
  bytesMax: number
): Effect.fn.Return<Audit> {
  const reader = AccessLog.makeReader()
  const access = logPath(directory)
  const errors = path.join(directory, path.basename(NginxConfig.paths.errorLog))
  const turns = yield* Semaphore.make(1)
  // Piece by piece, each wholly or not at all: whoever asks again goes on where this one was interrupted.
  const advance = (file: string, add: (bytes: Uint8Array) => void) => {
    let offset = 0
    const piece = HostDisk.use("the proxy's audit cannot be read", () => readPiece(file, offset)).pipe(
      Effect.map((bytes) => {
        offset += bytes.length
        add(bytes)
        return bytes.length
      }),
      Effect.uninterruptible
    )
    return Effect.repeat(piece, { until: (length) => length === 0 })
  }
  // The errors come last: that an answer broke off is written before the call is.
  const advanceAll = Effect.andThen(advance(access, reader.addAccess), advance(errors, reader.addErrors))

  const sizes = new Map<string, number>()
  const look = Effect.forEach([access, errors], (file) =>
    Effect.gen(function* () {
      const bytes = yield* HostDisk.use("the proxy's audit cannot be looked at", () => sizeOf(file))
      if (bytes < (sizes.get(file) ?? 0))
        return yield* new ProxyFailed({
          detail: `the proxy's ${path.basename(file)} was cut or removed under way`,
          remedy: "Leave the run's directory alone while the run lives"
        })
      if (bytes >= bytesMax)
        return yield* new ProxyFailed({
          detail: `the proxy's ${path.basename(file)} is nearly full, at ${bytesMax} bytes: another call might go by unwritten`,
          remedy: "Give the agent less to do in one run, or see in the log what it kept asking for"
        })
      sizes.set(file, bytes)
    })
  )

  return {
    read: turns.withPermit(Effect.map(advanceAll, reader.read)),
    failure: Effect.forever(Effect.andThen(look, Effect.sleep(Duration.seconds(lookSeconds))))
  }
})

/** How much of a log is read in one go. */
const pieceBytesMax = 256 * 1024

/** A log grows by some hundred rows in that time: what is over the rate is not logged. */
const lookSeconds = 1

const ifThere =
  <A>(fallback: A) =>
  (cause: NodeJS.ErrnoException): A | Promise<never> =>
    cause.code === "ENOENT" ? fallback : Promise.reject(cause)

const sizeOf = async (file: string): Promise<number> => {
  const stat = await fs.lstat(file).catch(ifThere(undefined))
  if (stat?.isFile() === false) throw new TypeError("it is no file")
  return stat?.size ?? 0
}

const readPiece = async (file: string, offset: number): Promise<Uint8Array> => {
  const handle = await fs
    .open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    .catch(ifThere(undefined))
  if (handle === undefined && offset === 0) return new Uint8Array()
  try {
    const stat = await handle?.stat()
    if (stat?.isFile() === false) throw new TypeError("it is no file")
    if (handle === undefined || stat === undefined || stat.size < offset)
      throw new TypeError("it was cut or removed under way")
    const bytes = Buffer.alloc(Math.min(stat.size - offset, pieceBytesMax))
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, offset)
    return bytes.subarray(0, bytesRead)
  } finally {
    await handle?.close()
  }
}
