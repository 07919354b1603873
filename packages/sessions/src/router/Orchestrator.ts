/**
 * The port to what answers the messages of a session.
 *
 * An orchestrator is made once for a session, over tools and an executor that stay the same for as long as it lives;
 * which sandbox is behind the executor is settled anew for each message, when something of it is first executed.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Context, type Effect, Schema, type Scope } from "effect"
import type { AgentConfig } from "../config/AgentConfig.ts"
import type { SessionExecutor } from "../executor/Executors.ts"
import { plain } from "../sandbox/SessionId.ts"
import type { ToolRegistry } from "@cogni/sandbox-loop/ToolRegistry"

/** Of a sender, 254 characters: an address of mail has no more. */
export const senderCharactersMax = 254

export const channelCharactersMax = 64

/** In UTF-8. */
export const textBytesMax = 256 * 1024

/** What somebody says on a channel. */
export const Message = Schema.Struct({
  channel: plain(channelCharactersMax),
  senderId: plain(senderCharactersMax),
  text: Schema.String.check(
    Schema.makeFilter((text: string) =>
      Buffer.byteLength(text) > textBytesMax ? `Expected at most ${textBytesMax} bytes` : undefined
    )
  ),
  /** The channel's own; handed on as it came. */
  messageId: Schema.optionalKey(plain(256))
})

export type Message = typeof Message.Type

export interface OrchestratorReply {
  readonly text: string
}

/** No reply came of a message. */
export class OrchestratorFailed extends Schema.TaggedError<OrchestratorFailed>()("OrchestratorFailed", {
  detail: Schema.String,
  remedy: Schema.String,
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** Answers the messages of one session, one after the other. */
export interface Orchestrator {
  readonly handle: (message: Message) => Effect.Effect<OrchestratorReply, OrchestratorFailed>
}

/** What an orchestrator is made from. */
export interface OrchestratorInput {
  readonly agent: AgentConfig
  /** That of the agent's tier, where the configuration names one. */
  readonly model?: string | undefined
  /** The session's: `channel:sender:agent`. */
  readonly key: string
  /** Stays the same; what is behind it is settled for each message, when something is first executed. */
  readonly executor: Executor
  /**
   * What is behind it for the message that is being answered: the session's sandbox, or the host. For who needs more
   * of a sandbox than to execute, such as its way to a model.
   */
  readonly bound: Effect.Effect<SessionExecutor, SandboxError>
  /** What the agent may call, over that executor. */
  readonly tools: ToolRegistry
}

/** Makes orchestrators. */
export class Orchestrators extends Context.Service<
  Orchestrators,
  {
    /** One for a session; closing the scope ends it, with all that it has under way. */
    readonly make: (input: OrchestratorInput) => Effect.Effect<Orchestrator, OrchestratorFailed, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/Orchestrators") {}
