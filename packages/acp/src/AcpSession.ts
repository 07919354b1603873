/**
 * Runner of prompts that an application gives to `AcpServer`: how a session opens, and how a prompt runs in it.
 *
 * The server holds the conversation of a session. The runner holds everything else, in the session's scope.
 */
import type { Message } from "@cogni/sandbox-graph-provider/agents/AgentFields"
import type { AgentEvent } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import type { Effect, Scope } from "effect"
import type { AcpRefusal } from "./AcpRefusal.ts"

/** A session that the client asks for. */
export interface AcpSessionRequest {
  readonly sessionId: string
  /** Directory that the client names: an absolute path of its machine. */
  readonly cwd: string
}

/** A call of a tool that the user may allow. */
export interface AcpQuestion {
  /** Unique in the session. */
  readonly id: string
  /** One line that names the tool. */
  readonly title: string
  /** The whole arguments. An agent wrote them. */
  readonly arguments: string
}

/** One prompt and its session's conversation. */
export interface AcpTurn {
  readonly prompt: string
  /** Earlier turns of the session: pairs of a prompt and its answer. */
  readonly earlier: ReadonlyArray<Message>
  /** Sends what the agent reports. Waits until the client has room for it. */
  readonly say: (event: AgentEvent) => Effect.Effect<void>
  /**
   * Asks the user whether a call may run, and waits for the answer. `false` if the user denies it, cancels the prompt,
   * or has a client that cannot ask.
   */
  readonly ask: (question: AcpQuestion) => Effect.Effect<boolean>
  /** Tells the user something about the run, beside the agent's answer. */
  readonly note: (severity: "info" | "warning", text: string) => Effect.Effect<void>
}

/** The end of a prompt. */
export interface AcpTurnEnd {
  readonly stopReason: "end_turn" | "max_tokens" | "max_turn_requests" | "refusal"
  /** The answer. It is sent if the agent has reported no text before. */
  readonly text: string
}

/** An open session of the runner. */
export interface AcpSession<R> {
  /** Path of the session's directory inside the sandbox; `undefined` if the sandbox does not have it. */
  readonly directory?: string | undefined
  /** Whether the sandbox changes the files of the client's directory itself, not those of a copy. */
  readonly isShared?: boolean | undefined
  /** Runs a prompt. Interruption cancels it, and waits until all its resources are released. */
  readonly prompt: (turn: AcpTurn) => Effect.Effect<AcpTurnEnd, AcpRefusal, R>
}

/** The runner of a server, and its settings. */
export interface AcpOptions<R> {
  /** Name and version that clients see. */
  readonly info: { readonly name: string; readonly title: string; readonly version: string }
  /** Opens a session. Its scope closes with the session. */
  readonly open: (request: AcpSessionRequest) => Effect.Effect<AcpSession<R>, AcpRefusal, R | Scope.Scope>
  /** `true` accepts sessions with MCP servers, without these servers (default: such sessions are refused). */
  readonly ignoreMcpServers?: boolean | undefined
  readonly limits?: Partial<AcpLimits> | undefined
  /** Rewrites messages of refusals, for a program whose users set flags instead of options. */
  readonly wording?: ((message: string) => string) | undefined
}

/** Limits of one connection. */
export interface AcpLimits {
  /** Longest message of the client (default 8 MiB). A longer one ends the connection. */
  readonly messageBytesMax: number
  /** Longest text of a prompt (default 1 MiB). */
  readonly promptBytesMax: number
  /** Open sessions (default 64). */
  readonly sessionsMax: number
  /** Prompts that run at the same time, in all sessions (default 8). */
  readonly promptsMax: number
  /** Characters of earlier turns that a session keeps (default 512 Ki). The oldest turns are dropped first. */
  readonly historyCharsMax: number
}
