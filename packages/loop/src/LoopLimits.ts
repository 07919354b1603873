/** Limits of a loop: steps, calls, time, tokens and bytes. */
import * as ChatBounds from "./internal/ChatBounds.ts"

/** Limits of a loop. */
export interface LoopLimits {
  /** Answers of the model. The loop ends if the last one still requests tools. */
  readonly stepsMax: number
  readonly toolCallsMax: number
  /** Calls of unknown tools, or with invalid arguments. */
  readonly invalidCallsMax: number
  readonly runtimeSecondsMax: number
  /** Total of all answers, checked after each. Uncounted answers are estimated from their bytes. */
  readonly outputTokensMax: number
  /** Tokens requested per answer (default: the model's own limit). Some models do not accept every value. */
  readonly answerTokensMax?: number | undefined
  /** Bytes of the conversation, including all tool results, at each request to the model. */
  readonly contextBytesMax: number
  /** Bytes of one result. A longer one is shortened to its beginning and end. */
  readonly toolResultBytesMax: number
  /** Attempts per request if its failures are retryable. */
  readonly attemptsMax: number
  /** Longest delay between two attempts, even if the upstream asks for more. */
  readonly retrySecondsMax: number
  readonly answer: ChatBounds.ChatLimits
}

export const defaultLimits: LoopLimits = {
  stepsMax: 50,
  toolCallsMax: 200,
  invalidCallsMax: 10,
  runtimeSecondsMax: 1800,
  outputTokensMax: 200_000,
  contextBytesMax: 1024 * 1024,
  toolResultBytesMax: 32 * 1024,
  attemptsMax: 4,
  retrySecondsMax: 30,
  answer: ChatBounds.defaultLimits
}
