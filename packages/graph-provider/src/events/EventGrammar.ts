/**
 * The grammar of a graph's events, as a state machine. Pure.
 *
 *     (text_delta | tool_call_start | tool_call_result | status)*
 *     assistant_final?  usage_report+  error?  done
 *
 * Exactly one `done`, last; at most one `error`, right before it; `usage_report` on every path; an `error` or an
 * `assistant_final`, not both. `next` judges; `complete` says what is missing of
 * a stream of somebody else's that ended.
 */
import { Result } from "effect"
import type { AiErrorCode, AiEvent } from "./AiEvent.ts"
import type { UsageFact } from "./UsageFact.ts"

/** How far a stream of events has come. */
export type GrammarState = "speaking" | "answered" | "reported" | "failed" | "done"

export const initial = { phase: "speaking", answered: false } as const satisfies Grammar

export interface Grammar {
  readonly phase: GrammarState
  /** An `assistant_final` was said: an `error` may not follow. */
  readonly answered: boolean
}

/** How a run ended. */
export interface Ending {
  readonly content?: string | undefined
  /** At least one, on every path. */
  readonly facts: readonly [UsageFact, ...ReadonlyArray<UsageFact>]
  readonly failure?:
    | { readonly error: AiErrorCode; readonly reason: string; readonly message: string }
    | undefined
}

/** The state after an event; why it may not come here, where it may not. */
export const next = (state: Grammar, event: AiEvent): Result.Result<Grammar, string> => {
  const { phase } = state
  if (phase === "done") return Result.fail(`${event.type} after done`)
  switch (event.type) {
    case "assistant_final":
      return phase === "speaking"
        ? Result.succeed({ phase: "answered", answered: true })
        : Result.fail(`assistant_final when it is ${phase}`)
    case "usage_report":
      return phase === "failed"
        ? Result.fail("usage_report after error")
        : Result.succeed({ ...state, phase: "reported" })
    case "error":
      if (state.answered) return Result.fail("error after assistant_final")
      return phase === "reported"
        ? Result.succeed({ ...state, phase: "failed" })
        : Result.fail(`error when it is ${phase}`)
    case "done":
      return phase === "reported" || phase === "failed"
        ? Result.succeed({ ...state, phase: "done" })
        : Result.fail("done before a usage_report")
    default:
      return phase === "speaking" ? Result.succeed(state) : Result.fail(`${event.type} when it is ${phase}`)
  }
}

/** The last events of a run, in their order. */
export const ending = ({ content, facts, failure }: Ending): ReadonlyArray<AiEvent> => [
  ...(content === undefined || failure !== undefined
    ? []
    : [{ type: "assistant_final", content } satisfies AiEvent]),
  ...facts.map((fact): AiEvent => ({ type: "usage_report", fact })),
  ...(failure === undefined ? [] : [{ type: "error", ...failure } satisfies AiEvent]),
  { type: "done" }
]

/** What is missing of a stream that ended where it is. Nothing, after `done`. */
export const complete = (
  state: Grammar,
  fact: UsageFact,
  failure: NonNullable<Ending["failure"]>
): ReadonlyArray<AiEvent> => {
  const { answered, phase } = state
  if (phase === "done") return []
  const isReported = phase === "reported" || phase === "failed"
  return [
    ...(isReported ? [] : [{ type: "usage_report", fact } satisfies AiEvent]),
    ...(answered || phase === "failed" ? [] : [{ type: "error", ...failure } satisfies AiEvent]),
    { type: "done" }
  ]
}
