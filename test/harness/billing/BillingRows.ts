/**
 * Records of the calls of planned runs, read without the code that is tested: the lines of audits, and
 * the rows in LiteLLM's own table.
 */
import { CallEnded, CallStarted, RunKeyed } from "@cogni/sandbox-proxy/AuditEntry"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import { Effect, Option, Schema } from "effect"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { LiteLlmDatabase } from "../LiteLlmDatabase.ts"
import * as BillingHost from "./BillingHost.ts"
import type { PlannedRun } from "./BillingPlan.ts"
import type { ProvenRun } from "./BillingProof.ts"

/** A row of LiteLLM's spend logs. */
export const Row = Schema.Struct({
  request_id: Schema.String,
  litellm_call_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
  api_key: Schema.String,
  end_user: Schema.NullOr(Schema.String),
  user: Schema.NullOr(Schema.String),
  team_id: Schema.NullOr(Schema.String),
  status: Schema.NullOr(Schema.String),
  spend: Schema.Finite,
  prompt_tokens: Schema.Int,
  completion_tokens: Schema.Int,
  request_tags: Schema.Unknown,
  metadata: Schema.Struct({
    litellm_call_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
    spend_logs_metadata: Schema.optionalKey(Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown)))
  })
})

export type Row = typeof Row.Type

const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Row))

/** Returns rows with the fields that are compared. */
export const decoded = (found: unknown): Effect.Effect<ReadonlyArray<Row>> => Effect.orDie(decodeRows(found))

/** Reads all rows of LiteLLM, of all keys. */
export const rows = ({ select }: LiteLlmDatabase): Effect.Effect<ReadonlyArray<Row>> =>
  Effect.flatMap(select(`SELECT * FROM "LiteLLM_SpendLogs"`), decoded)

/** Our ID of the call that a row is about. */
export const callIdOf = ({ litellm_call_id, metadata, request_id }: Row): string =>
  litellm_call_id ?? metadata.litellm_call_id ?? request_id

export interface AuditedRun {
  readonly keyHash: string | undefined
  readonly started: ReadonlyMap<string, typeof CallStarted.Type>
  readonly ended: ReadonlyMap<string, typeof CallEnded.Type>
}

const decodeLine = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Union([RunKeyed, CallStarted, CallEnded]))
)

/** Reads the audit in the directory of a run. A killed host may leave a last line that is not complete. */
export const audited = (directory: string | undefined): AuditedRun => {
  const path = join(directory ?? "", "audit", "audit.jsonl")
  const started = new Map<string, typeof CallStarted.Type>()
  const ended = new Map<string, typeof CallEnded.Type>()
  let keyHash: string | undefined
  const lines = directory !== undefined && existsSync(path) ? readFileSync(path, "utf8").split("\n") : []
  for (const text of lines) {
    const line = Option.getOrUndefined(decodeLine(text))
    if (line?.type === "run.keyed") keyHash = line.keyHash
    if (line?.type === "call.started") started.set(line.callId, line)
    if (line?.type === "call.ended") ended.set(line.callId, line)
  }
  return { keyHash, started, ended }
}

/** IDs of the runs that have begun below a directory, in and without containers. */
export const runIdsIn = (directory: string): ReadonlyArray<string> =>
  [directory, join(directory, "runs")].flatMap((place) =>
    existsSync(place) ? readdirSync(place).filter((name) => name.startsWith("billing-")) : []
  )

/** Reads the audits of all runs that have begun below some directories. */
export const provenRuns = (plan: ReadonlyArray<PlannedRun>, directories: ReadonlyArray<string>) =>
  Ledger.use((ledger) =>
    Effect.forEach([...new Set(directories.flatMap(runIdsIn))], (runId) =>
      Effect.map(ledger.attempts(runId), ([run]): ProvenRun => {
        const index = BillingHost.indexOf(runId)
        return { runId, plan: plan.find((one) => one.index === index)!, audit: audited(run?.directory) }
      })
    )
  )
