/** Figures of a row, and what they say about its call. Pure. */
import type { SpendRow } from "../SpendRows.ts"

/** Whether a row has neither tokens nor a cost. */
export const isZero = ({ costUsd = 0, inputTokens = 0, outputTokens = 0, unreadable }: SpendRow): boolean =>
  unreadable !== true && costUsd === 0 && inputTokens === 0 && outputTokens === 0

/** Whether a row is of a call, or of an attempt, that failed and costs nothing. */
export const isEmptyFailure = (row: SpendRow): boolean => row.status === "failure" && isZero(row)
