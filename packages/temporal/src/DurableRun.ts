/**
 * A durable run and its outcome. Plain data: both are in the history of a workflow.
 *
 * A request has the ID of a grant, never its token. Pure.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunRequest } from "@cogni/sandbox-graph-provider/graphs/RunRequest"
import { Schema } from "effect"

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** Label of a host. */
export const Label = Schema.String.check(Schema.isPattern(/^[a-z0-9][a-z0-9.=_-]{0,62}$/u))

const positive = Schema.Finite.check(Schema.isGreaterThan(0))

/** The needs of a run at its host. Default: one place for a sandbox. */
export const HostNeeds = Schema.Struct({
  cores: Schema.optionalKey(positive),
  memoryBytes: Schema.optionalKey(positive),
  /** Labels that the host must have, such as `region=eu` or `gpu`. */
  labels: Schema.optionalKey(Schema.Array(Label).check(Schema.isMaxLength(32)))
})

export type HostNeeds = typeof HostNeeds.Type

/** Attempts after the first have a suffix such as `-a1`, which must fit into a run ID. */
const idCharsMax = 44

const bounded = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

export const DurableRun = Schema.Struct({
  /** ID of the run and of its workflow. Never used twice. */
  runId: RunId.RunId.check(Schema.isMaxLength(idCharsMax)),
  /** ID of the grant that permits the run. A host must have its token. */
  grantId: Identifier,
  /** The request to the agent, as in the body of `POST /api/v1/runs`. */
  request: RunRequest,
  needs: HostNeeds,
  /** Attempts allowed, if a host is lost and its cost is known. */
  attemptsMax: bounded(1, 10),
  /** Time from the start of the workflow until the run is stopped, whatever its host reports. */
  wallSecondsMax: bounded(1, 7 * 86_400),
  /** Time to find a host with room. */
  placementSecondsMax: bounded(1, 7 * 86_400),
  /** Time without any sign of the host after which it counts as lost. */
  hostGoneSecondsMax: bounded(1, 3600)
})

export type DurableRun = typeof DurableRun.Type

/** The account of a submitted run and its model, which are shown before a host has the run. */
export interface RunOwner {
  readonly billingAccountId: string
  readonly model: string
}

/** Limits of a run that sets none. */
export const defaults = {
  needs: {},
  attemptsMax: 1,
  wallSecondsMax: 2 * 3600,
  placementSecondsMax: 3600,
  hostGoneSecondsMax: 60
} satisfies Partial<typeof DurableRun.Encoded>

/** The known cost of one attempt. */
export const RunSpend = Schema.Struct({
  /** Known cost. Absent if none is known. */
  costUsd: Schema.optionalKey(Schema.Finite),
  calls: Schema.Int,
  inputTokens: Schema.optionalKey(Schema.Int),
  outputTokens: Schema.optionalKey(Schema.Int),
  /** False if more may have been spent: the audit was not read yet, or a call has no cost. */
  isFinal: Schema.Boolean
})

export type RunSpend = typeof RunSpend.Type

/** The report of a keeper about one attempt, which is a run of its own. */
export const AttemptReport = Schema.Struct({
  runId: Schema.String,
  attempt: Schema.Int,
  /** Name of the host. */
  host: Schema.String,
  /** Status of the record, such as `succeeded`. `unknown`: no host could be asked. */
  status: Schema.String,
  reason: Schema.optionalKey(Schema.String),
  exitCode: Schema.optionalKey(Schema.Int),
  spend: RunSpend,
  /** How the commits were delivered, such as `pushed`. */
  delivery: Schema.optionalKey(Schema.String),
  branch: Schema.optionalKey(Schema.String),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Number of the last event that was followed. */
  lastEventId: Schema.Int
})

export type AttemptReport = typeof AttemptReport.Type

/**
 * How a durable run ended. `failed`: the agent did. `refused`: nothing was started. `lost`: its host was. `stopped`: by
 * a cancellation (`Cancelled`) or the time limit (`WallClockExceeded`).
 */
export const DurableStatus = Schema.Literals(["succeeded", "failed", "refused", "lost", "stopped"])

export type DurableStatus = typeof DurableStatus.Type

export const DurableOutcome = Schema.Struct({
  runId: Schema.String,
  status: DurableStatus,
  /** Why the run did not succeed, such as `OomKilled` or `HostLost`. */
  reason: Schema.optionalKey(Schema.String),
  message: Schema.optionalKey(Schema.String),
  /** One for each attempt that may have begun, the oldest first. */
  attempts: Schema.Array(AttemptReport)
})

export type DurableOutcome = typeof DurableOutcome.Type
