/**
 * Reads from its audit what a run used, for runs whose host process was killed before it could report their traffic.
 *
 * Reads only, so any number of processes may do it at the same time, with the same result. Calls that were open are
 * charged as reserved. Entries that do not match the hash chain are not trusted: their usage is unknown.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import type { TrafficOf } from "@cogni/sandbox-core/TrafficOf"
import { Data, Effect } from "effect"
import { createReadStream } from "node:fs"
import { join } from "node:path"
import * as AuditLog from "./AuditLog.ts"
import * as AuditUsage from "./internal/audit/AuditUsage.ts"
import type { Prices } from "./Prices.ts"

interface AuditTrafficOptions {
  /** Model prices of the gateway. Without them, open calls have no cost. */
  readonly prices?: Prices | undefined
}

/** The audit exists but cannot be read. */
class AuditUnreadable extends Data.TaggedError("AuditUnreadable")<{
  readonly runId: string
  readonly detail: string
}> {
  override get message(): string {
    return `the audit of ${this.runId} cannot be read: ${this.detail}`
  }
}

/**
 * Creates a reader of the audits of runs, for `FileRunStore`. It returns nothing for a run without a gateway's audit:
 * its proxy was never opened, or it was nginx, whose log has no usage.
 */
export const reader =
  (options: AuditTrafficOptions = {}): TrafficOf =>
  ({ directory, runId }) => {
    const auditPath = join(directory, AuditLog.relativePath)
    return attempt(
      async () => {
        const traffic = AuditUsage.make(runId, options.prices)
        for await (const piece of createReadStream(auditPath)) traffic.push(piece as Buffer)
        return { ...traffic.end(), auditPath }
      },
      (detail, thrown) => ({ thrown, unreadable: new AuditUnreadable({ runId, detail }) })
    ).pipe(
      Effect.catch(({ thrown, unreadable }) =>
        (thrown as NodeJS.ErrnoException).code === "ENOENT"
          ? Effect.succeed(undefined)
          : Effect.fail(unreadable)
      )
    )
  }
