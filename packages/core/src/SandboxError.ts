/**
 * The error of a run that did not end by itself.
 *
 * It has a `reason`. A broken limit carries the partial result; every other reason is a fault with a remedy. An exit
 * code is a value, never an error. Reasons derive from facts of the kernel and the engine, never from texts.
 */
import * as Schema from "effect/Schema"
import { RunId } from "./RunId.ts"
import { LlmTraffic } from "./RunFigures.ts"
import {
  type Partial,
  type ErrorCode,
  InvalidSpec,
  RunIdInUse,
  StoreUnavailable,
  InsufficientCredits,
  AccountBusy,
  RuntimeUnavailable,
  ImageNotFound,
  ContainerFailed,
  ProxyFailed,
  PostureMismatch,
  HostFailed,
  Misconfigured,
  WorkspaceFailed,
  CommandTimedOut,
  CommandRefused,
  CommandInputFailed,
  FileRefused,
  LimitReason
} from "./SandboxReason.ts"

/**
 * Every reason, by its tag.
 *
 * **Example** fail as a port does: `new SandboxError.Reason.cases.ImageNotFound({ image })`
 */
export const Reason = Schema.Union([
  ...LimitReason.members,
  InvalidSpec,
  RunIdInUse,
  StoreUnavailable,
  InsufficientCredits,
  AccountBusy,
  RuntimeUnavailable,
  ImageNotFound,
  ContainerFailed,
  ProxyFailed,
  PostureMismatch,
  HostFailed,
  Misconfigured,
  WorkspaceFailed,
  CommandTimedOut,
  CommandRefused,
  CommandInputFailed,
  FileRefused
]).pipe(Schema.toTaggedUnion("_tag"))

export type Reason = typeof Reason.Type

/** Name by which Node asks an object how it is shown. Node has no export for it that works elsewhere. */
const inspected = Symbol.for("nodejs.util.inspect.custom")

/**
 * The only error of `SandboxRunner`.
 *
 * **Example** recover from one reason: `Effect.catchReason("SandboxError", "OomKilled", (reason) => …)`
 */
export class SandboxError extends Schema.TaggedError<SandboxError>()("SandboxError", {
  /** Absent when the spec was refused before the run had an id. */
  runId: Schema.optionalKey(RunId),
  reason: Reason,
  /** Traffic through the proxy until then. Absent if the run had no proxy, or if its log could not be read. */
  llm: Schema.optionalKey(LlmTraffic)
}) {
  get code(): ErrorCode {
    return this.reason.code
  }
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  /** The partial result, if a limit or the proxy ended the run. */
  get partial(): Partial | undefined {
    return "partial" in this.reason ? this.reason.partial : undefined
  }
  override get message(): string {
    return `${this.runId === undefined ? "" : `${this.runId}: `}${this.reason.message}`
  }
  /** Shows the message in `console.log` and the debugger of Node. The output of the run is left out. */
  [inspected](): string {
    const frames = (this.stack ?? "").split("\n").filter((line) => /^\s+at /u.test(line))
    const { code, isRetryable, reason } = this
    const facts = `{ reason: '${reason._tag}', code: '${code}', isRetryable: ${isRetryable} }`
    return [`SandboxError: ${this.message}`, ...frames, facts].join("\n")
  }
}
