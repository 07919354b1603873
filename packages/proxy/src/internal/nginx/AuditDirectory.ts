/**
 * Manages the host directory into which a run's proxy writes its logs.
 *
 * The proxy is not trusted beyond that: files are opened without following links, and read once and in pieces, without
 * waiting for their end.
 */
import { runEntries } from "@cogni/sandbox-host-files/StateDirectory"
import { Clock, Duration, Effect, type Scope, Semaphore } from "effect"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { User } from "@cogni/sandbox-core/Posture"
import { type HostFailed, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import * as HostDisk from "../HostDisk.ts"
import * as AccessLog from "./AccessLog.ts"
import * as NginxConfig from "./NginxConfig.ts"

export const logPath = (directory: string): string =>
  path.join(directory, path.basename(NginxConfig.paths.accessLog))

/**
 * Creates the directory, which only its owner can enter: the proxy's user, or this process if none is named. It
 * outlives the run if the run has a directory.
 */
export const acquire = Effect.fnUntraced(function* (
  parent: string | undefined,
  owner?: User
): Effect.fn.Return<string, HostFailed, Scope.Scope> {
  const failure = "the proxy's audit cannot be created"
  const directory =
    parent === undefined
      ? yield* HostDisk.temporaryDirectory(failure, "cogni-sandbox-audit-")
      : path.join(parent, runEntries.audit)
  yield* HostDisk.use(failure, async () => {
    if (parent !== undefined) await fs.mkdir(directory, { mode: 0o700 })
    if (owner !== undefined && process.getuid?.() === 0)
      await fs.chown(directory, owner.userId, owner.groupId)
  })
  return directory
})

/** A log that cannot be read ends a run as a failure of its proxy, so that the run keeps its partial result. */
const duringRun = <A>(failure: string, run: () => Promise<A>) =>
  HostDisk.use(failure, run).pipe(
    Effect.mapError(
      ({ detail, path: subject, remedy }) => new ProxyFailed({ detail: `${subject} ${detail}`, remedy })
    )
  )

/** A run's two logs while they grow. */
export interface Audit {
  /** Reads the log so far; empty if it does not exist yet. */
  readonly read: Effect.Effect<AccessLog.AccessLog, ProxyFailed>
  /**
   * Never succeeds. Fails when a log is nearly full, was truncated, or cannot be read. nginx logs a call only after it
   * has answered it, so it would notice a full log too late.
   */
  readonly failure: Effect.Effect<never, ProxyFailed>
}

/** Follows the logs in this directory. */
export const follow = Effect.fnUntraced(function* (
  directory: string,
  /** Maximum size of each log. */
  bytesMax: number
): Effect.fn.Return<Audit> {
  const reader = AccessLog.makeReader()
  const access = logPath(directory)
  const errors = path.join(directory, path.basename(NginxConfig.paths.errorLog))
  const turns = yield* Semaphore.make(1)
  // Each piece is read completely or not at all, so the next read continues where this one was interrupted.
  const advance = (file: string, add: (bytes: Uint8Array) => void) => {
    let offset = 0
    const piece = duringRun("the proxy's audit cannot be read", () => readPiece(file, offset)).pipe(
      Effect.map((bytes) => {
        offset += bytes.length
        add(bytes)
        return bytes.length
      }),
      Effect.uninterruptible
    )
    return Effect.repeat(piece, { until: (length) => length === 0 })
  }
  // Read the errors last: nginx writes the error of an answer that broke off before it writes the call.
  const advanceAll = Effect.andThen(advance(access, reader.addAccess), advance(errors, reader.addErrors))

  const sizes = new Map([access, errors].map((file) => [file, 0]))
  /** Looks at both logs, and returns how long to wait until the next look. */
  const look = Effect.fnUntraced(function* (pauseSeconds: number) {
    const found = yield* duringRun("the proxy's audit cannot be inspected", () =>
      Promise.all([...sizes.keys()].map(async (file) => [file, await sizeOf(file)] as const))
    )
    const isQuiet = found.every(([file, bytes]) => bytes === sizes.get(file) && bytes < bytesMax / 2)
    for (const [file, bytes] of found) {
      if (bytes < sizes.get(file)!)
        return yield* new ProxyFailed({
          detail: `the proxy's ${path.basename(file)} was truncated or removed during the run`,
          remedy: "Do not change the run's directory during the run"
        })
      if (bytes >= bytesMax)
        return yield* new ProxyFailed({
          detail: `the proxy's ${path.basename(file)} is nearly full, at ${bytesMax} bytes: another call might not be logged`,
          remedy: "Give the agent less to do in one run, or check the log for repeated requests"
        })
      sizes.set(file, bytes)
    }
    return isQuiet ? Math.min(lookSeconds.max, 2 * pauseSeconds) : lookSeconds.min
  })

  return {
    read: turns.withPermit(Effect.map(advanceAll, reader.read)),
    failure: Effect.gen(function* () {
      let pauseSeconds = lookSeconds.min
      for (;;) {
        pauseSeconds = yield* look(pauseSeconds)
        yield* pause(pauseSeconds)
      }
    })
  }
})

/** Maximum size of one read of a log. */
const pieceBytesMax = 256 * 1024

/**
 * Interval of checks. A log grows by some hundred rows in a second, because requests above the rate are not logged. A
 * log that does not grow, and is less than half full, is checked less often.
 */
const lookSeconds = { min: 1, max: 5 }

/**
 * The longest pauses of all runs end at the same moments. Each look wakes a thread that reads files, unless it is awake
 * for the look of another run.
 */
const pause = Effect.fnUntraced(function* (seconds: number) {
  const millis = seconds * 1000
  const now = yield* Clock.currentTimeMillis
  yield* Effect.sleep(Duration.millis(seconds < lookSeconds.max ? millis : millis - (now % millis)))
})

const ifThere =
  <A>(fallback: A) =>
  (cause: NodeJS.ErrnoException): A | Promise<never> =>
    cause.code === "ENOENT" ? fallback : Promise.reject(cause)

const sizeOf = async (file: string): Promise<number> => {
  const stat = await fs.lstat(file).catch(ifThere(undefined))
  if (stat?.isFile() === false) throw new TypeError("it is not a regular file")
  return stat?.size ?? 0
}

const readPiece = async (file: string, offset: number): Promise<Uint8Array> => {
  const handle = await fs
    .open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    .catch(ifThere(undefined))
  if (handle === undefined && offset === 0) return new Uint8Array()
  try {
    const stat = await handle?.stat()
    if (stat?.isFile() === false) throw new TypeError("it is not a regular file")
    if (handle === undefined || stat === undefined || stat.size < offset)
      throw new TypeError("it was truncated or removed during the run")
    const bytes = Buffer.alloc(Math.min(stat.size - offset, pieceBytesMax))
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, offset)
    return bytes.subarray(0, bytesRead)
  } finally {
    await handle?.close()
  }
}
