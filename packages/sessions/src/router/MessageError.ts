/** Reasons why a message has no reply: it is invalid, a limit is reached, or answering it failed or timed out. */
import { Schema } from "effect"
import { OrchestratorFailed } from "./Orchestrator.ts"

/** The message is invalid. */
export class MessageInvalid extends Schema.TaggedError<MessageInvalid>()("MessageInvalid", {
  problems: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the message is refused: ${this.problems.join("; ")}`
  }
}

/** The limit on concurrent sessions is reached. */
export class SessionsFull extends Schema.TaggedError<SessionsFull>()("SessionsFull", {
  sessionsMax: Schema.Int
}) {
  readonly isRetryable = true
  override get message(): string {
    return `there are ${this.sessionsMax} sessions already. Try again when one has ended, or raise sandbox.sessions_max`
  }
}

/** The limit on unanswered messages of this session is reached. */
export class SessionBusy extends Schema.TaggedError<SessionBusy>()("SessionBusy", {
  messagesPerSessionMax: Schema.Int
}) {
  readonly isRetryable = true
  override get message(): string {
    return `${this.messagesPerSessionMax} messages of this session are not answered yet. Wait for one of them`
  }
}

/** The agent executes on the host, and the program has no host executor. */
export class HostUnavailable extends Schema.TaggedError<HostUnavailable>()("HostUnavailable", {
  detail: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `${this.detail}, and there is no host executor. Give the agent a sandbox, or the program a host executor`
  }
}

/** The time limit of the message was reached. */
export class MessageTimedOut extends Schema.TaggedError<MessageTimedOut>()("MessageTimedOut", {
  messageSecondsMax: Schema.Finite
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the message was not answered within ${this.messageSecondsMax} s, and its work was stopped. Ask for less`
  }
}

/** This process is shutting down. */
export class RouterStopping extends Schema.TaggedError<RouterStopping>()("RouterStopping", {}) {
  readonly isRetryable = true
  override get message(): string {
    return "this process is shutting down. Ask again when it is back"
  }
}

/** A message that has no reply. */
export class MessageError extends Schema.TaggedError<MessageError>()("MessageError", {
  /** Key of the session; absent if the message was not routed. */
  key: Schema.optionalKey(Schema.String),
  agent: Schema.optionalKey(Schema.String),
  reason: Schema.Union([
    MessageInvalid,
    SessionsFull,
    SessionBusy,
    HostUnavailable,
    MessageTimedOut,
    RouterStopping,
    OrchestratorFailed
  ])
}) {
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message(): string {
    return `${this.agent === undefined ? "" : `${this.agent}: `}${this.reason.message}`
  }
}
