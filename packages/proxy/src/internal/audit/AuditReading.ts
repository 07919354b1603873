/** Reads the audit of a run from its directory, piece by piece. */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import { Data, Effect } from "effect"
import { createReadStream, promises } from "node:fs"
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
