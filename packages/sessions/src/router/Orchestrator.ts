/**
 * Port to the orchestrators, which answer the messages of sessions.
 *
 * Each session has one orchestrator, whose tools and executor stay the same for the life of the session. The sandbox
 * behind the executor is chosen again for each message, when the message first executes something.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Context, type Effect, Schema, type Scope } from "effect"
import type { AgentConfig } from "../config/AgentConfig.ts"
import type { SessionExecutor } from "../executor/Executors.ts"
import { plain } from "../sandbox/SessionId.ts"
import type { ToolRegistry } from "@cogni/sandbox-loop/ToolRegistry"

/** Longest sender ID in characters: an email address has at most 254. */
export const senderCharactersMax = 254

export const channelCharactersMax = 64

/** Longest message text, in UTF-8. */
export const textBytesMax = 256 * 1024

/** A message on a channel. */
export const Message = Schema.Struct({
  channel: plain(channelCharactersMax),
  senderId: plain(senderCharactersMax),
  text: Schema.String.check(
    Schema.makeFilter((text: string) =>
      Buffer.byteLength(text) > textBytesMax ? `Expected at most ${textBytesMax} bytes` : undefined
    )
  ),
  /** ID given by the channel; the reply repeats it. */
  messageId: Schema.optionalKey(plain(256))
})

export type Message = typeof Message.Type

export interface OrchestratorReply {
  readonly text: string
}

/** The orchestrator could not answer a message. */
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

/** Inputs of one orchestrator. */
export interface OrchestratorInput {
  readonly agent: AgentConfig
  /** Model of the agent's tier, if the configuration names one. */
  readonly model?: string | undefined
  /** Key of the session: `channel:sender:agent`. */
  readonly key: string
  /** Stays the same for the whole session. Chooses the sandbox or the host when a message first executes something. */
  readonly executor: Executor
  /**
   * Executor of the current message: the session's sandbox, or the host. For orchestrators that need more of a sandbox
   * than execution, such as its socket to a model.
   */
  readonly bound: Effect.Effect<SessionExecutor, SandboxError>
  /** Tools that the agent may call, over {@link executor}. */
  readonly tools: ToolRegistry
}

/** Makes orchestrators. */
export class Orchestrators extends Context.Service<
  Orchestrators,
  {
    /** Creates the orchestrator of a session. Closing the scope ends it, with all of its running work. */
    readonly make: (input: OrchestratorInput) => Effect.Effect<Orchestrator, OrchestratorFailed, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/Orchestrators") {}
