/**
 * Port to runs that are submitted to a queue, and run on a host that has room.
 *
 * A server with this service submits runs instead of running them itself. Such a run goes on when the server ends.
 * Until it has a record, and if it never gets one, only the queue knows it.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { RunState } from "@cogni/sandbox-core/RunFacts"
import { Context, type Effect, Schema } from "effect"
import type { GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GraphRefused } from "./GraphRun.ts"

/** How a run ended, as its queue knows it. */
export interface SubmittedEnd {
  readonly state: Exclude<RunState, "running">
  /** Why the run did not succeed, such as `NoRoom` or `HostLost`. */
  readonly reason?: string | undefined
}

/** A submitted run. */
export interface SubmittedRun {
  readonly runId: RunId
  readonly billingAccountId: string
  readonly grantId: string
  readonly graphId: string
  readonly model: string
  /** URL of the repository that the run works in. */
  readonly repository?: string | undefined
  /** Time in UTC, such as `2026-01-31T23:59:59.000Z`. Lists begin with the newest run. */
  readonly submittedAt?: string | undefined
  /** Absent: the run waits for a host, or is under way. */
  readonly end?: SubmittedEnd | undefined
}

/** The queue does not answer. */
export class SubmittedRunsUnavailable extends Schema.TaggedError<SubmittedRunsUnavailable>()(
  "SubmittedRunsUnavailable",
  { detail: Schema.String, remedy: Schema.String }
) {
  readonly isRetryable = true
  override get message(): string {
    return `the queue of runs did not answer: ${this.detail}. ${this.remedy}`
  }
}

export class SubmittedRuns extends Context.Service<
  SubmittedRuns,
  {
    /** Submits a run that its caller may start. Fails if its ID was ever used (`RunIdInUse`). */
    readonly submit: (request: GraphRunRequest, context: RunContext) => Effect.Effect<void, GraphRefused>
    /** Returns a run that was submitted by a server, if the queue still knows it. */
    readonly find: (runId: RunId) => Effect.Effect<SubmittedRun | undefined, SubmittedRunsUnavailable>
    /** Runs of an account that have not ended, the newest first, at most some hundred. */
    readonly underWay: (
      billingAccountId: string
    ) => Effect.Effect<ReadonlyArray<SubmittedRun>, SubmittedRunsUnavailable>
    /** Waits until a run has ended. Interrupting it does not end the run. */
    readonly ended: (runId: RunId) => Effect.Effect<void, SubmittedRunsUnavailable>
    /** Asks for the end of a run. `false`: the queue has no such run of the account that has not ended. */
    readonly cancel: (
      runId: RunId,
      billingAccountId: string
    ) => Effect.Effect<boolean, SubmittedRunsUnavailable>
  }
>()("@cogni/sandbox-graph-provider/SubmittedRuns") {}
