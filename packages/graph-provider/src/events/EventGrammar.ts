/**
 * The grammar of a graph's events, as a state machine. Pure.
 *
 *     (text_delta | tool_call_start | tool_call_result | status)*
 *     assistant_final?  usage_report+  error?  done
 *
 * Exactly one `done`, last; at most one `error`, right before it; `usage_report` on every path; an `error` or an
 * `assistant_final`, not both. `next` checks an event. `complete` returns the missing end of a third-party stream.
 */
import { Result } from "effect"
import type { AiErrorCode, AiEvent } from "./AiEvent.ts"
import type { UsageFact } from "./UsageFact.ts"

/** Progress of a stream of events. */
export type GrammarState = "speaking" | "answered" | "reported" | "failed" | "done"

export const initial = { phase: "speaking", answered: false } as const satisfies Grammar

export interface Grammar {
  readonly phase: GrammarState
  /** True after an `assistant_final`: an `error` may not follow. */
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

/** Returns the state after an event, or the reason why the event is not allowed here. */
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

/** Returns the last events of a run, in order. */
export const ending = ({ content, facts, failure }: Ending): ReadonlyArray<AiEvent> => [
  ...(content === undefined || failure !== undefined
    ? []
    : [{ type: "assistant_final", content } satisfies AiEvent]),
  ...facts.map((fact): AiEvent => ({ type: "usage_report", fact })),
  ...(failure === undefined ? [] : [{ type: "error", ...failure } satisfies AiEvent]),
  { type: "done" }
]

/** Returns the events that a stream lacks when it ends in this state. None after `done`. */
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
