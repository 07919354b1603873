/**
 * Events of a run, while it runs.
 *
 * Exactly one `RunStarted`, first; on success exactly one `RunEnded`, last. A failure is the stream's error.
 */
import type { LlmObservation } from "./LlmObservation.ts"
import type { Posture } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import type { OutputChunk, RunResult } from "./RunResult.ts"
import type { Phase } from "./RunFigures.ts"

export type RunEvent =
  /** The run has an ID; nothing is created yet. */
  | { readonly _tag: "RunStarted"; readonly runId: RunId }
  /** A phase has ended. */
  | { readonly _tag: "PhaseEnded"; readonly phase: Phase; readonly durationMs: number }
  /** The sandbox isolation check passed; the agent starts now. */
  | { readonly _tag: "PostureVerified"; readonly posture: Posture }
  /** The agent wrote something. The bytes are as received, and may end inside a character. */
  | ({ readonly _tag: "OutputReceived" } & OutputChunk)
  /** A canary was seen leaving the sandbox, once of each kind; or a budget is spent, and calls are refused. */
  | LlmObservation
  /** The run ended by itself, and all its resources are released. */
  | { readonly _tag: "RunEnded"; readonly result: RunResult }
