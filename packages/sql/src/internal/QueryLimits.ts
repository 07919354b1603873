/** Limits of queries by untrusted authors, and how they fail. */
import { Schema } from "effect"

export const limits = {
  sqlCharactersMax: 20_000,
  rowsMax: 500,
  /** Longest answer as JSON, in bytes. Later rows are left out. */
  bytesMax: 256 * 1024,
  /** Time limit of one query, in seconds. */
  secondsMax: 15
} as const

export interface QueryAnswer {
  readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>
  /** Whether there are more rows, or there is more than fits. */
  readonly isTruncated: boolean
}

/** `refused`: no query of this kind runs. `failed`: the database answered with an error. */
export class QueryFailed extends Schema.TaggedError<QueryFailed>()("QueryFailed", {
  reason: Schema.Literals(["refused", "failed", "slow", "unavailable"]),
  detail: Schema.String
}) {
  override get message(): string {
    return this.detail
  }
}

export const slow = new QueryFailed({
  reason: "slow",
  detail: `the query took longer than ${limits.secondsMax} s, and was stopped. Ask for less`
})
