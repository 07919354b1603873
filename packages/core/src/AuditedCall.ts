/** Function between a ledger and a proxy: the model calls of a run, as the run's audit records them. */
import type { Effect } from "effect"
import type { RunId } from "./RunId.ts"
import type { LlmOutcome, LlmUsage } from "./RunFigures.ts"

/** A call that was recorded before it went upstream. */
export interface AuditedCall {
  /** The host's ID of the call, under which the upstream logs it. */
  readonly callId: string
  /** The upstream's own ID of the call, if the upstream finds its record only by that. */
  readonly upstreamCallId?: string | undefined
  /** When it began, ISO 8601 in UTC. */
  readonly at: string
  /** The model's name at the upstream. */
  readonly model: string
  readonly stream: boolean
  /** Absent if the audit has no end of the call: its process died, or the call has not ended. */
  readonly outcome?: LlmOutcome | undefined
  /** The charged figures: reported by the upstream, or reserved for the call (`estimated`). Absent if none is known. */
  readonly usage?: LlmUsage | undefined
  /** Cost that was reserved for the call. Absent if the model has no price. */
  readonly reservedUsd?: number | undefined
  /** No model ran: the call counts tokens, or it ended before a model could run. */
  readonly isFree?: true | undefined
  /** The request asks for no model: it counts tokens or lists models. Such a call is free too. */
  readonly runsNoModel?: true | undefined
}

/** The calls of a run, in the order of their beginnings. */
export interface AuditedCalls {
  readonly calls: ReadonlyArray<AuditedCall>
  /** False if a part of the audit cannot be trusted. Calls after the beginning of that part are missing. */
  readonly isWhole: boolean
  /** The directory of the run was deleted, and its audit with it. */
  readonly isGone?: true | undefined
  /** SHA-256 of the key that the upstream issued for this run alone, in hexadecimal. Absent if it has none. */
  readonly runKeyHash?: string | undefined
}

/**
 * Returns the model calls of a run from the audit in its directory, or nothing if that directory has none.
 * `AuditCalls.reader` of `@cogni/sandbox-proxy` returns one. Reads only, so any number of processes may do it at the same
 * time.
 */
export type CallsOf = (run: {
  readonly runId: RunId
  readonly directory: string
}) => Effect.Effect<AuditedCalls | undefined, { readonly message: string }>
