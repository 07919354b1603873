/**
 * Errors between a request and a credential. Every message says what happened and what to do. None contains a
 * credential, or text of a server that was near one.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { describeIssue } from "@cogni/sandbox-core/SandboxSpec"
import { Schema } from "effect"

/** Why a use is not in both the grant and the request. */
export const Denial = Schema.Literals([
  "no_user",
  "invalid_request",
  "grant_revoked",
  "grant_expired",
  "account_mismatch",
  "no_connection",
  "connection_revoked",
  "connection_expired",
  "connection_not_granted",
  "purpose_not_granted",
  "repository_not_granted",
  "tool_not_granted"
])

export type Denial = typeof Denial.Type

const denials: Readonly<Record<Denial, string>> = {
  no_user: "the use is not on behalf of a grant",
  invalid_request: "the request does not name what its use needs",
  grant_revoked: "the grant was revoked",
  grant_expired: "the grant has expired",
  account_mismatch: "the grant does not act for this account",
  no_connection: "the account has no connection to this server",
  connection_revoked: "the connection was removed",
  connection_expired: "the connection has expired",
  connection_not_granted: "the grant does not open this connection",
  purpose_not_granted: "the grant or the connection does not allow this use",
  repository_not_granted: "the grant or the connection does not allow this repository",
  tool_not_granted: "the grant or the connection does not allow this tool"
}

const otherGrant = "Ask its owner for a grant that does"
const addAgain = `Add it again (${named("ConnectionStore.add")})`

const remedies: Readonly<Record<Denial, string>> = {
  no_user: `Provide the grant of the run around the operation (${named("ConnectionUser")})`,
  invalid_request: "Name a repository by its https URL, or a tool and its connection",
  grant_revoked: "Ask its owner for a new one",
  grant_expired: "Ask its owner for a new one",
  account_mismatch: "Use the account that it was issued for",
  no_connection: `Add one (${named("ConnectionStore.add")})`,
  connection_revoked: addAgain,
  connection_expired: `Remove it and add it again (${named("ConnectionStore.add")})`,
  connection_not_granted: otherGrant,
  purpose_not_granted: otherGrant,
  repository_not_granted: `Name another repository, or ask for a grant that does`,
  tool_not_granted: otherGrant
}

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

/** Name of the connection, what failed, as the end of a sentence, and what to do. */
const failure = { connection: Schema.String, detail: Schema.String, remedy: Schema.String }

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

/** The property of an issued credential that is not as permitted. */
export const Claim = Schema.Literals([
  "account",
  "connection",
  "expiry",
  "format",
  "repository",
  "rights",
  "server",
  "tool"
])

export type Claim = typeof Claim.Type

const claims: Readonly<Record<Claim, string>> = {
  account: "is for another account",
  connection: "is for another connection",
  expiry: "has expired already",
  format: "has a format that no server accepts",
  repository: "is for another repository, or for more than one",
  rights: "has more rights than were asked for, or lacks some",
  server: "is for another server",
  tool: "is for another tool"
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

/** A stored secret cannot be decrypted, or is missing. */
export class SecretUnreadable extends Schema.TaggedError<SecretUnreadable>()("SecretUnreadable", failure) {
  readonly isRetryable = false
  override get message(): string {
    return `connection ${this.connection}: its secret ${this.detail}. ${this.remedy}`
  }
}

/** A lease ended while its credential was in use. */
export class LeaseEnded extends Schema.TaggedError<LeaseEnded>()("LeaseEnded", {
  connection: Schema.String,
  why: Schema.Literals(["expired", "revoked", "unverified"])
}) {
  get isRetryable(): boolean {
    return this.why !== "revoked"
  }
  get remedy(): string {
    const words = {
      expired: "Try again: the next use gets a new lease",
      revoked: "Ask the owner of the account",
      unverified: "Check the database, then try again"
    }
    return words[this.why]
  }
  override get message(): string {
    const words = {
      expired: "expired",
      revoked: "was revoked",
      unverified: "could not be verified for too long"
    }
    return `connection ${this.connection}: the lease of its credential ${words[this.why]}. ${this.remedy}`
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

export const ConnectionReason = Schema.Union([
  ConnectionDenied,
  SourceUnavailable,
  SourceRefused,
  CredentialMismatch,
  SecretUnreadable,
  LeaseEnded,
  ConnectionStoreUnavailable
])

export type ConnectionReason = typeof ConnectionReason.Type

/** Coarse code of a reason. */
export type ConnectionCode = "policy_denied" | "unavailable" | "internal"

const codes: Readonly<Record<ConnectionReason["_tag"], ConnectionCode>> = {
  ConnectionDenied: "policy_denied",
  SourceUnavailable: "unavailable",
  SourceRefused: "internal",
  CredentialMismatch: "internal",
  SecretUnreadable: "internal",
  LeaseEnded: "unavailable",
  ConnectionStoreUnavailable: "unavailable"
}

/** The only error of `ConnectionBroker`. */
export class ConnectionError extends Schema.TaggedError<ConnectionError>()("ConnectionError", {
  reason: ConnectionReason
}) {
  get code(): ConnectionCode {
    return codes[this.reason._tag]
  }
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  /** The message without its remedy. */
  get detail(): string {
    return this.message.slice(0, -`. ${this.remedy}`.length)
  }
  get remedy(): string {
    return this.reason.remedy
  }
  override get message(): string {
    return this.reason.message
  }
}
