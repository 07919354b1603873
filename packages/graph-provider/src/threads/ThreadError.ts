/** Reasons why a turn of a thread cannot run, or a thread cannot be removed. */
import { Schema } from "effect"

/** Another turn of the thread is running, or it is being removed. One thread has one turn at a time. */
export class ThreadBusy extends Schema.TaggedError<ThreadBusy>()("ThreadBusy", {
  /** Seconds after which the thread is free, if the other turn has ended without saying so. */
  retrySeconds: Schema.Int
}) {
  readonly isRetryable = true
  override get message(): string {
    return "a turn of this thread is running, or the thread is being removed. Wait until that has ended, and try again"
  }
}

/** The account has too many threads, or the thread has too many turns. */
export class ThreadLimitReached extends Schema.TaggedError<ThreadLimitReached>()("ThreadLimitReached", {
  limit: Schema.Literals(["threads", "turns", "bytes"]),
  max: Schema.Int
}) {
  readonly isRetryable = false
  override get message(): string {
    return this.limit === "threads"
      ? `this account has ${this.max} threads, which is the maximum. Remove threads that are not needed`
      : `the history of this thread has reached ${this.max} ${this.limit}, which is the maximum. Start another thread`
  }
}

/** The files of all accounts' threads take too much space on this host. */
export class ThreadHostFull extends Schema.TaggedError<ThreadHostFull>()("ThreadHostFull", {
  /**
   * `share`: the host is full, and the account uses its share or more. `running`: the running turns of the account, and
   * files of it that are not measured, may fill too much of the host. `host`: no account can have a turn.
   */
  limit: Schema.Literals(["share", "running", "host"]),
  /** Bytes of the limit that was reached. */
  bytesMax: Schema.Int
}) {
  readonly isRetryable = true
  override get message(): string {
    const { bytesMax, limit } = this
    if (limit === "running")
      return (
        "the running turns of this account, and files of it that are not measured yet, may fill " +
        `${bytesMax} bytes of this host, which leaves the rest to other accounts. ` +
        "Wait until a turn of the account has ended, or a sweep has measured its files, and try again"
      )
    return limit === "share"
      ? "this host is full of files of threads, also those of other accounts, and this account uses its share of " +
          `${bytesMax} bytes or more. Remove or reset threads of this account, or ask the operator of the host for more`
      : `the files of all accounts' threads on this host have reached ${bytesMax} bytes, twice its limit, and those ` +
          "of other accounts count. Ask the operator of the host for more, or try again later"
  }
}

/** The history of the thread is there, but its files are not. */
export class ThreadFilesLost extends Schema.TaggedError<ThreadFilesLost>()("ThreadFilesLost", {
  /** The host that had them. */
  host: Schema.String,
  isHere: Schema.Boolean
}) {
  readonly isRetryable = false
  override get message(): string {
    const where = this.isHere
      ? "the files of this thread are gone from the disk of this host"
      : "the files of this thread are on another host"
    return (
      `${where}. Its history is still there. ` +
      (this.isHere ? "Restore them" : "Continue or remove it on that host") +
      ", or reset it: its next turn then begins with empty files, and receives the history as text"
    )
  }
}

/** A turn or a removal lost its thread: its host was stopped or could not reach the database for too long. */
export class ThreadLost extends Schema.TaggedError<ThreadLost>()("ThreadLost", {}) {
  readonly isRetryable = true
  override get message(): string {
    return (
      "the thread was lost, because the database did not answer in time. " +
      "A turn is not part of the history then. Try again"
    )
  }
}

/** The account has no such thread. */
export class ThreadNotFound extends Schema.TaggedError<ThreadNotFound>()("ThreadNotFound", {}) {
  readonly isRetryable = false
  override get message(): string {
    return "this account has no such thread. List its threads"
  }
}

/** The store of threads cannot be reached. */
export class ThreadsUnavailable extends Schema.TaggedError<ThreadsUnavailable>()("ThreadsUnavailable", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = true
  override get message(): string {
    return `the store of threads ${this.detail}. ${this.remedy}`
  }
}

/** The thread cannot be remembered on this host, or not with this request. */
export class ThreadUnsupported extends Schema.TaggedError<ThreadUnsupported>()("ThreadUnsupported", {
  detail: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return this.detail
  }
}

/** The directory of a thread cannot be used. */
export class ThreadFilesFailed extends Schema.TaggedError<ThreadFilesFailed>()("ThreadFilesFailed", {
  detail: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return this.detail
  }
}

export type ThreadRefusal =
  | ThreadBusy
  | ThreadHostFull
  | ThreadLimitReached
  | ThreadFilesLost
  | ThreadFilesFailed
  | ThreadUnsupported
  | ThreadsUnavailable
