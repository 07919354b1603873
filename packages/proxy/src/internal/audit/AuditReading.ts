/** Reads the audit of a run from its directory, piece by piece. */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import { Data, Effect } from "effect"
import { constants, createReadStream, promises } from "node:fs"
import { join } from "node:path"
import * as AuditLog from "../../AuditLog.ts"

/** The audit exists but cannot be read. */
export class AuditUnreadable extends Data.TaggedError("AuditUnreadable")<{
  readonly runId: string
  readonly detail: string
}> {
  override get message(): string {
    return `the audit of ${this.runId} cannot be read: ${this.detail}`
  }
}

/** Gives the bytes of an audit to a collector, and returns what it collected, or nothing if there is no audit. */
export const read = <A>(
  { directory, runId }: { readonly directory: string; readonly runId: string },
  collect: () => { readonly push: (bytes: Uint8Array) => void; readonly end: () => A }
): Effect.Effect<A | undefined, AuditUnreadable> =>
  attempt(
    async () => {
      const collector = collect()
      for await (const piece of createReadStream(pathOf(directory))) collector.push(piece as Buffer)
      return collector.end()
    },
    (detail, thrown) => ({ thrown, unreadable: new AuditUnreadable({ runId, detail }) })
  ).pipe(
    Effect.catch(({ thrown, unreadable }) =>
      (thrown as NodeJS.ErrnoException).code === "ENOENT"
        ? Effect.succeed(undefined)
        : Effect.fail(unreadable)
    )
  )

const pieceBytesMax = 256 * 1024

/** How far an audit was read. */
export interface Mark {
  /** The file, which another one of the same name is not. */
  readonly file: string
  /** When the file was written last, before it was read. A mark without it is also one of a file that grows. */
  readonly written?: string | undefined
  /** Number of bytes before this place. */
  readonly offset: number
}

/** Collects the bytes of an audit. */
export interface Collector {
  readonly push: (bytes: Uint8Array) => void
  /** Whether there are enough bytes. */
  readonly isEnough?: (() => boolean) | undefined
  /** The file of the mark is gone, or shorter than before: it is read from its beginning. */
  readonly restart?: (() => void) | undefined
}

/**
 * Gives the bytes of an audit to a collector, from a mark or the beginning, until it has enough. Returns how far it
 * read. Reads nothing through a link, nor out of the directory of the run.
 */
export const readWithin = (
  { directory, runId }: { readonly directory: string; readonly runId: string },
  collector: Collector,
  from?: Mark
): Effect.Effect<Mark | "absent" | "elsewhere", AuditUnreadable> =>
  attempt(
    async () => {
      const path = pathOf(directory)
      const info = await promises.lstat(path)
      const [really, should] = await Promise.all([promises.realpath(path), promises.realpath(directory)])
      if (!info.isFile() || really !== pathOf(should)) return "elsewhere" as const
      const file = await promises.open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
      try {
        const { birthtimeNs, ctimeNs, dev, ino, size } = await file.stat({ bigint: true })
        // A new file may have the number of a removed one.
        const found = `${dev}:${ino}:${birthtimeNs}`
        const written = String(ctimeNs)
        const isAsWritten = from?.written === undefined || from.written === written
        const isSame = from?.file === found && size >= BigInt(from.offset) && isAsWritten
        if (from !== undefined && !isSame) collector.restart?.()
        let offset = isSame ? from.offset : 0
        const pieces = file.createReadStream({
          autoClose: false,
          highWaterMark: pieceBytesMax,
          start: offset
        })
        for await (const piece of pieces) {
          offset += (piece as Buffer).byteLength
          collector.push(piece as Buffer)
          if (collector.isEnough?.() === true) break
        }
        return { file: found, written, offset }
      } finally {
        await file.close()
      }
    },
    (detail, thrown) => ({ thrown, unreadable: new AuditUnreadable({ runId, detail }) })
  ).pipe(
    Effect.catch(({ thrown, unreadable }) =>
      (thrown as NodeJS.ErrnoException).code === "ENOENT"
        ? Effect.succeed("absent" as const)
        : Effect.fail(unreadable)
    )
  )

/** Returns whether the directory of a run does not exist. */
export const isGone = ({
  directory,
  runId
}: {
  readonly directory: string
  readonly runId: string
}): Effect.Effect<boolean, AuditUnreadable> =>
  attempt(
    () =>
      promises.access(directory).then(
        () => false,
        (thrown: NodeJS.ErrnoException) => thrown.code === "ENOENT" || Promise.reject(thrown)
      ),
    (detail) => new AuditUnreadable({ runId, detail })
  )

export const pathOf = (directory: string): string => join(directory, AuditLog.relativePath)
