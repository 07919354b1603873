/** Errors of the ledger. */
import * as Schema from "effect/Schema"

/** The ledger cannot be read or written. The operation may have taken effect; repeating it is safe. */
export class LedgerUnavailable extends Schema.TaggedError<LedgerUnavailable>()("LedgerUnavailable", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = true
  override get message(): string {
    return `the ledger ${this.detail}. ${this.remedy}`
  }
}

/** Another process has a run with this ID and attempt in the ledger. */
export class LedgerRunInUse extends Schema.TaggedError<LedgerRunInUse>()("LedgerRunInUse", {
  runId: Schema.String,
  attempt: Schema.Int
}) {
  readonly isRetryable = false
  override get message(): string {
    return `run ${this.runId}, attempt ${this.attempt}, is in the ledger already. Choose another run ID, or the next attempt`
  }
}

/** The ledger has no such run, so nothing can be settled. */
export class LedgerRunUnknown extends Schema.TaggedError<LedgerRunUnknown>()("LedgerRunUnknown", {
  runId: Schema.String,
  attempt: Schema.Int
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the ledger has no run ${this.runId}, attempt ${this.attempt}. Open it before it is settled`
  }
}

/** The input breaks a rule of the ledger. Nothing of it was stored. */
export class LedgerRefused extends Schema.TaggedError<LedgerRefused>()("LedgerRefused", {
  problems: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the ledger refused its input: ${this.problems.join("; ")}. Correct it; nothing was stored`
  }
}
