/**
 * The reasons why a store of grants refuses or fails.
 */
import { describeIssue } from "@cogni/sandbox-core/SchemaIssues"
import { Schema } from "effect"

/** The grant store cannot be reached. Access is denied. */
export class GrantStoreUnavailable extends Schema.TaggedError<GrantStoreUnavailable>()(
  "GrantStoreUnavailable",
  {
    detail: Schema.String,
    remedy: Schema.String
  }
) {
  readonly isRetryable = true
  override get message(): string {
    return `the grant store ${this.detail}. ${this.remedy}`
  }
}

/** The input is not a valid grant. The error does not repeat its values. */
export class GrantRefused extends Schema.TaggedError<GrantRefused>()("GrantRefused", {
  /** Each invalid field: its path, such as `permissions`, `tools`, `0`, and its rule. */
  issues: Schema.Array(Schema.Struct({ path: Schema.Array(Schema.String), message: Schema.String }))
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the grant is invalid: ${this.issues.map(describeIssue).join("; ")}. Correct it and issue it again`
  }
}
