/** What happens in a loop, and how it ends. */
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Effect } from "effect"
import type * as ChatModel from "../ChatModel.ts"

/** Tokens as the upstream counted them; where it did not, estimates. */
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
  | { readonly outcome: "model_failed"; readonly error: ChatModel.ChatModelFailed }
  | { readonly outcome: "sandbox_failed"; readonly error: SandboxError }

/** The one end of a loop. */
export type LoopEnd = LoopVerdict & {
  /** The last thing the model said: its answer, where it finished. */
  readonly text: string
  readonly steps: number
  readonly toolCalls: number
  readonly usage: LoopUsage
  readonly durationMs: number
  /** What happened and what to do. */
  readonly message: string
}

/** What happens on the way. Every call that began ends. */
export type LoopProgress =
  | { readonly type: "step_started"; readonly step: number }
  | { readonly type: "text_delta"; readonly delta: string }
  /** `input`: the arguments, where they are some; else `{ malformed }`, the beginning of what was written in their stead. */
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

/** Who is told of it; the loop goes on when it has been. */
export type Tell = (event: LoopProgress) => Effect.Effect<void>

export type LoopEvent = LoopProgress | { readonly type: "ended"; readonly end: LoopEnd }
