/**
 * Sources of an upstream's key: a value, an effect that returns the current key, or a signer that signs each call.
 *
 * Sources run in the host's main thread, bounded in time. The threads that serve runs get only their results. A key
 * from an effect is used for a bounded time, so a rotated key also reaches runs that are already open.
 */
import { type Effect, type Redacted, Schema } from "effect"
import type { SigningRequest } from "./internal/gateway/UpstreamKeys.ts"

/** The key could not be obtained. Write no secret into the detail: it is recorded in the run's audit. */
export class KeyUnavailable extends Schema.TaggedError<KeyUnavailable>()("KeyUnavailable", {
  /** Description of the failure, such as `the token endpoint answered 503`. */
  detail: Schema.String,
  remedy: Schema.String,
  /** Whether the same request may get a key later. If not, a run that starts is refused for good. */
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return `the upstream's key is not available: ${this.detail}. ${this.remedy}`
  }
}

/**
 * Signs each call, such as with AWS Signature Version 4. Returns the headers to add, each with a name in lower
 * case that the request does not have yet.
 */
export interface Signer {
  readonly sign: (
    request: SigningRequest
  ) => Effect.Effect<Readonly<Record<string, Redacted.Redacted<string>>>, KeyUnavailable>
}
