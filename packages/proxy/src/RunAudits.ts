/**
 * Reads the audits of runs on this host: verifies them, and lists their entries.
 *
 * Only reads, so it works while a run is active. It reads from the run's own directory, and follows no link and no path
 * of a record.
 */
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Context, Effect, Layer } from "effect"
import type * as AuditLog from "./AuditLog.ts"
import * as AuditReading from "./internal/audit/AuditReading.ts"

export { AuditUnreadable } from "./internal/audit/AuditReading.ts"

/** The parts of a record that its audit is verified against. */
export type AuditedRun = Pick<RunRecord, "llm" | "outcome" | "runId">

/** A reading of an audit that stops early, when `isEnough` is true. */
export type Reading = Pick<AuditReading.Collector, "push" | "isEnough">

/** A reading that goes on from where the last one ended, or begins again. */
export interface FurtherReading {
  readonly push: (bytes: Uint8Array) => void
  /** The file is another one, or shorter than before: its first bytes come next. */
  readonly restart: () => void
  /** Whether there are enough bytes. */
  readonly isEnough?: (() => boolean) | undefined
}

export type Mark = AuditReading.Mark

/** Where the audit of a run is. */
export type Found = "read" | "absent" | "elsewhere"

export class RunAudits extends Context.Service<
  RunAudits,
  {
    /**
     * Reads an audit in pieces. `absent`: this host has none. `elsewhere`: its path is a link, or leads out of the
     * run's directory, so it was not read.
     */
    readonly read: (runId: string, reading: Reading) => Effect.Effect<Found, AuditReading.AuditUnreadable>
    /**
     * Reads what an audit has after a mark, and returns the next mark. If the file is another one, or shorter, or was
     * written since the mark's `written`, it reads from the beginning, after a call of `restart`.
     */
    readonly readOn: (
      runId: string,
      reading: FurtherReading,
      from?: Mark
    ) => Effect.Effect<Mark | Exclude<Found, "read">, AuditReading.AuditUnreadable>
  }
>()("@cogni/sandbox-proxy/RunAudits") {}

/** Whether the audit may lack its end: the run is still active, or its process died before it closed the audit. */
const mayBeOpen = ({ outcome }: AuditedRun): boolean =>
  outcome.status === "running" || outcome.status === "abandoned"

/** Returns the values that an audit is verified against. */
export const expectedOf = (run: AuditedRun): AuditLog.Expected => ({
  runId: run.runId,
  head: run.llm?.auditHead,
  ended: !mayBeOpen(run)
})

/** Reads from the directories of runs. */
export const layer = (options: {
  /** Returns the directory of a run. */
  readonly directoryOf: (runId: string) => string
}): Layer.Layer<RunAudits> => {
  const placeOf = (runId: string) => ({ runId, directory: options.directoryOf(runId) })
  return Layer.succeed(RunAudits, {
    read: (runId, reading) =>
      Effect.map(AuditReading.readWithin(placeOf(runId), reading), (found) =>
        typeof found === "string" ? found : "read"
      ),
    readOn: (runId, reading, from) => AuditReading.readWithin(placeOf(runId), reading, from)
  })
}

/** Audits in memory, by run ID. */
export const layerMemory = (audits: ReadonlyMap<string, Uint8Array>): Layer.Layer<RunAudits> =>
  Layer.succeed(RunAudits, {
    read: (runId, { push }) =>
      Effect.sync((): Found => {
        const audit = audits.get(runId)
        if (audit === undefined) return "absent"
        push(audit)
        return "read"
      }),
    readOn: (runId, { push, restart }, from) =>
      Effect.sync(() => {
        const audit = audits.get(runId)
        if (audit === undefined) return "absent"
        const isShorter = from !== undefined && from.offset > audit.byteLength
        if (isShorter) restart()
        push(audit.subarray(isShorter ? 0 : from?.offset))
        return { file: runId, written: "", offset: audit.byteLength }
      })
  })
