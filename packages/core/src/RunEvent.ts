/**
 * What is seen of a run while it runs.
 *
 * Exactly one `RunStarted`, first; on success exactly one `RunEnded`, last. A failure is the stream's error.
 */
import type { Posture } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import type { Evidence, Exhaustion, Phase, RunResult } from "./RunResult.ts"

/** The run has an id; nothing is made yet. */
export interface RunStarted {
  readonly _tag: "RunStarted"
  readonly runId: RunId
}

/** A phase is over. */
export interface PhaseEnded {
  readonly _tag: "PhaseEnded"
  readonly phase: Phase
  readonly durationMs: number
}

/** The sandbox is held as it must be; the agent starts now. */
export interface PostureVerified {
  readonly _tag: "PostureVerified"
  readonly posture: Posture
}

/** The agent wrote something. The bytes are as they came, and may end inside a character. */
export interface OutputReceived {
  readonly _tag: "OutputReceived"
  readonly channel: "stdout" | "stderr"
  readonly bytes: Uint8Array
}

/** A canary was seen on a way out. The first time of each kind. */
export interface ExfiltrationSuspected {
  readonly _tag: "ExfiltrationSuspected"
  readonly evidence: Evidence
}

/** A budget of the run's model is spent: calls are refused from here on. */
export interface BudgetExhausted {
  readonly _tag: "BudgetExhausted"
  readonly exhaustion: Exhaustion
}

/** The run ended by itself and nothing of it is left. */
export interface RunEnded {
  readonly _tag: "RunEnded"
  readonly result: RunResult
}

export type RunEvent =
  | RunStarted
  | PhaseEnded
  | PostureVerified
  | OutputReceived
  | ExfiltrationSuspected
  | BudgetExhausted
  | RunEnded
