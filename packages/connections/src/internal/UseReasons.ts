/** Reasons that only the broker itself has: too many uses, a secret that does not open, and a lease that ended. */
import { Schema } from "effect"

/** Name of the connection, what failed, as the end of a sentence, and what to do. */
export const failure = { connection: Schema.String, detail: Schema.String, remedy: Schema.String }

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

/** A run or an account has used credentials too often in this minute. Nothing was decided, and nothing is recorded. */
export class TooManyUses extends Schema.TaggedError<TooManyUses>()("TooManyUses", {
  whose: Schema.Literals(["account", "run"]),
  usesPerMinuteMax: Schema.Int,
  waitSeconds: Schema.Int
}) {
  readonly isRetryable = true
  get remedy(): string {
    return `Try again in ${this.waitSeconds} s`
  }
  override get message(): string {
    const said = `the ${this.whose} may use credentials ${this.usesPerMinuteMax} times per minute on this host`
    return `${said}, and has done so. ${this.remedy}`
  }
}
