/** The error of `ConnectionBroker`: a coarse code, a reason, and what to do. */
import { Schema } from "effect"
import {
  ConnectionDenied,
  ConnectionStoreUnavailable,
  CredentialMismatch,
  SourceRefused,
  SourceUnavailable
} from "./ConnectionReason.ts"
import { LeaseEnded, SecretUnreadable, TooManyUses } from "./internal/UseReasons.ts"

const ConnectionReason = Schema.Union([
  ConnectionDenied,
  SourceUnavailable,
  SourceRefused,
  CredentialMismatch,
  SecretUnreadable,
  LeaseEnded,
  TooManyUses,
  ConnectionStoreUnavailable
])

type ConnectionReason = typeof ConnectionReason.Type

/** Coarse code of a reason. */
type ConnectionCode = "policy_denied" | "unavailable" | "internal"

const codes: Readonly<Record<ConnectionReason["_tag"], ConnectionCode>> = {
  ConnectionDenied: "policy_denied",
  SourceUnavailable: "unavailable",
  SourceRefused: "internal",
  CredentialMismatch: "internal",
  SecretUnreadable: "internal",
  LeaseEnded: "unavailable",
  TooManyUses: "unavailable",
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
