/** How much of everything a loop may have: steps, calls, time, tokens, bytes. */
import * as ChatModel from "../ChatModel.ts"

/** How much of everything a loop may have. */
export interface LoopLimits {
  /** Answers of the model. The last one may ask for nothing more. */
  readonly stepsMax: number
  readonly toolCallsMax: number
  /** Calls of tools that do not exist, or with arguments that are none. */
  readonly invalidCallsMax: number
  readonly runtimeSecondsMax: number
  /** Of all answers, looked at after each; what an upstream does not count is estimated from its bytes. */
  readonly outputTokensMax: number
  /** What is asked for in one answer at most. Absent: as many as the model gives; not all take any number. */
  readonly answerTokensMax?: number | undefined
  /** Of the conversation, when the model is asked; so also of all results of tools together. */
  readonly contextBytesMax: number
  /** Of one result; of a longer one, the beginning and the end are told. */
  readonly toolResultBytesMax: number
  /** How often one question is asked when its model cannot answer now. */
  readonly attemptsMax: number
  /** Between two attempts, whatever the upstream asks for. */
  readonly retrySecondsMax: number
  readonly answer: ChatModel.ChatLimits
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
  answer: ChatModel.defaultLimits
}
