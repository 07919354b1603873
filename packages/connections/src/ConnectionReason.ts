/**
 * Why there is no credential, or no connection. Every message says what happened and what to do. None contains a
 * credential, or text of a server that was near one.
 */
import { describeIssue } from "@cogni/sandbox-core/SchemaIssues"
import { Schema } from "effect"
import { Claim, claims } from "./internal/Claim.ts"
import { Denial, denials, remedies } from "./internal/Denial.ts"
import { failure } from "./internal/UseReasons.ts"

/** The use is not in both the grant and the request. No credential was looked at. */
export class ConnectionDenied extends Schema.TaggedError<ConnectionDenied>()("ConnectionDenied", {
  grantId: Schema.String,
  purpose: Schema.String,
  reason: Denial
}) {
  readonly isRetryable = false
  get remedy(): string {
    return remedies[this.reason]
  }
  override get message(): string {
    return `policy_denied: no credential to ${this.purpose}: ${denials[this.reason]}. ${this.remedy}`
  }
}

/** The issuer of credentials did not answer, or cannot answer now. */
export class SourceUnavailable extends Schema.TaggedError<SourceUnavailable>()("SourceUnavailable", failure) {
  readonly isRetryable = true
  override get message(): string {
    return `connection ${this.connection}: ${this.detail}. ${this.remedy}`
  }
}

/** The issuer of credentials refused, or is not configured. */
export class SourceRefused extends Schema.TaggedError<SourceRefused>()("SourceRefused", failure) {
  readonly isRetryable = false
  override get message(): string {
    return `connection ${this.connection}: ${this.detail}. ${this.remedy}`
  }
}

/** The issuer answered with a credential that the permit does not cover. It was not used. */
export class CredentialMismatch extends Schema.TaggedError<CredentialMismatch>()("CredentialMismatch", {
  connection: Schema.String,
  claim: Claim
}) {
  readonly isRetryable = false
  readonly remedy = "Check the configuration of the issuer"
  override get message(): string {
    const said = `its issuer answered with a credential that ${claims[this.claim]}, which was not used`
    return `connection ${this.connection}: ${said}. ${this.remedy}`
  }
}

/** The connection store cannot be read or written. Without it, no credential is issued. */
export class ConnectionStoreUnavailable extends Schema.TaggedError<ConnectionStoreUnavailable>()(
  "ConnectionStoreUnavailable",
  { detail: Schema.String, remedy: Schema.String }
) {
  readonly isRetryable = true
  override get message(): string {
    return `the connection store ${this.detail}. ${this.remedy}`
  }
}

/** The input is not a valid connection. The error does not repeat its values. */
export class ConnectionRefused extends Schema.TaggedError<ConnectionRefused>()("ConnectionRefused", {
  issues: Schema.Array(Schema.Struct({ path: Schema.Array(Schema.String), message: Schema.String }))
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the connection is invalid: ${this.issues.map(describeIssue).join("; ")}. Correct it and add it again`
  }
}

/** The account has a connection with this name. */
export class ConnectionExists extends Schema.TaggedError<ConnectionExists>()("ConnectionExists", {
  connection: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the account has a connection ${this.connection} already. Choose another name, or remove it first`
  }
}
