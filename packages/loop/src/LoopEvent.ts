/** Events and results of a loop. */
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Effect } from "effect"
import type * as ChatError from "./ChatError.ts"

/** Tokens as counted by the upstream. Uncounted output is estimated, uncounted input is 0. */
export interface LoopUsage {
  readonly inputTokens: number
  readonly outputTokens: number
}

/** How a loop ended. */
export type LoopOutcome =
  | "finished"
  | "steps_exhausted"
  | "tool_calls_exhausted"
  | "invalid_calls_exhausted"
  | "output_tokens_exhausted"
  | "context_exhausted"
  | "timeout"
  | "model_failed"
  | "sandbox_failed"

export type LoopVerdict =
  | { readonly outcome: Exclude<LoopOutcome, "model_failed" | "sandbox_failed"> }
  | { readonly outcome: "model_failed"; readonly error: ChatError.ChatModelFailed }
  | { readonly outcome: "sandbox_failed"; readonly error: SandboxError }

/** Result of a loop. */
export type LoopEnd = LoopVerdict & {
  /** The model's last text, which is its answer if it finished. */
  readonly text: string
  readonly steps: number
  readonly toolCalls: number
  readonly usage: LoopUsage
  readonly durationMs: number
  /** Outcome and remedy in one text. */
  readonly message: string
}

/** Progress of a loop. Every call that starts also ends. */
export type LoopProgress =
  | { readonly type: "step_started"; readonly step: number }
  | { readonly type: "text_delta"; readonly delta: string }
  /** `input` has the arguments or, if they are invalid, their beginning as `{ malformed }`. */
  | {
      readonly type: "tool_call_started"
      readonly id: string
      readonly name: string
      readonly input: Readonly<Record<string, unknown>>
    }
  | {
      readonly type: "tool_call_ended"
      readonly id: string
      readonly name: string
      readonly content: string
      readonly isError: boolean
      readonly durationMs: number
    }
  | ({ readonly type: "step_ended"; readonly step: number } & LoopUsage)

/** Receives progress. The loop waits for it. */
export type Tell = (event: LoopProgress) => Effect.Effect<void>

export type LoopEvent = LoopProgress | { readonly type: "ended"; readonly end: LoopEnd }
