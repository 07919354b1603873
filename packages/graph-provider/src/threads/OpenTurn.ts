/**
 * A turn of a thread: as it is asked for, and while it is open.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { WorkspaceSource } from "@cogni/sandbox-core/SpecFields"
import type { Effect } from "effect"
import type { Agent } from "../agents/Agent.ts"
import type { AgentSession } from "../agents/AgentFields.ts"
import type { Message } from "../agents/AgentFields.ts"
import type * as Thread from "./Thread.ts"
import type * as ThreadError from "./ThreadError.ts"

/** A turn that wants to begin. */
export interface AskedTurn {
  readonly billingAccountId: string
  readonly threadId: string
  readonly runId: RunId
  readonly agent: Pick<Agent, "id" | "capabilities">
  readonly personality?: string | undefined
  readonly asked: string
}

/** A turn that holds its thread. */
export interface OpenTurn {
  /** The agent's part of the conversation. */
  readonly messages: readonly [Message, ...ReadonlyArray<Message>]
  readonly session: AgentSession | undefined
  readonly workspace: WorkspaceSource
  /** Marks the turn as begun. From then on, only its end leaves a session to continue. */
  readonly begin: Effect.Effect<
    void,
    ThreadError.ThreadFilesFailed | ThreadError.ThreadLost | ThreadError.ThreadsUnavailable
  >
  /** Records the answer. */
  readonly end: (
    answered: string
  ) => Effect.Effect<void, ThreadError.ThreadLost | ThreadError.ThreadsUnavailable>
  /** Fails when the turn no longer holds its thread. Never succeeds. */
  readonly lost: Effect.Effect<never, ThreadError.ThreadLost>
}

/** The keys of threads that a sweep removed or emptied, and why others could not be. */
export interface Swept {
  readonly expired: ReadonlyArray<Thread.Thread>
  readonly emptied: ReadonlyArray<Thread.Thread>
  /** Files on this host that no thread has any more. */
  readonly orphans: ReadonlyArray<Thread.FilesName>
  readonly failed: ReadonlyArray<{ readonly key: Thread.ThreadKey; readonly reason: string }>
}
