/**
 * Names of the attributes of spans and log lines, and of operations. Only this module spells them out.
 *
 * They follow the OpenTelemetry semantic conventions where these exist (`container.*`, `gen_ai.*`, `error.type`), and
 * begin with `sandbox.*` elsewhere. No attribute ever contains a prompt, an output or a credential.
 */
import { Context, type LogLevel } from "effect"

export const attribute = {
  runId: "sandbox.run.id",
  /** State that a run has reached: `started`, `ready` or `ended`. */
  runState: "sandbox.run.state",
  /** How a run ended: `exited`, `failed`, `closed` or `interrupted`. */
  outcome: "sandbox.run.outcome",
  attempt: "sandbox.run.attempt",
  durationMs: "sandbox.run.duration_ms",
  accountId: "sandbox.account.id",
  agentId: "gen_ai.agent.id",
  /** The name of the source documents for `gen_ai.agent.id`, in log lines. */
  agentVariant: "agentVariant",
  conversationId: "gen_ai.conversation.id",
  /** In log lines, for loggers without support for spans. */
  traceId: "trace_id",
  graphId: "sandbox.graph.id",
  phase: "sandbox.phase",
  /** `hit` if a run got a waiting sandbox, otherwise why it did not. */
  pool: "sandbox.pool",
  exitCode: "process.exit.code",
  errorType: "error.type",
  containerImage: "container.image.name",
  operation: "gen_ai.operation.name",
  provider: "gen_ai.provider.name",
  serverAddress: "server.address",
  serverPort: "server.port",
  model: "gen_ai.request.model",
  responseModel: "gen_ai.response.model",
  inputTokens: "gen_ai.usage.input_tokens",
  outputTokens: "gen_ai.usage.output_tokens",
  toolName: "gen_ai.tool.name",
  toolCallId: "gen_ai.tool.call.id",
  /** How the approval of a tool call ended. Absent if the call needed none. */
  toolApproval: "sandbox.tool.approval",
  httpMethod: "http.request.method",
  httpStatus: "http.response.status_code",
  urlPath: "url.path",
  callId: "sandbox.llm.call.id",
  callOutcome: "sandbox.llm.call.outcome",
  costUsd: "sandbox.llm.cost_usd",
  executor: "sandbox.executor",
  executorFallback: "sandbox.executor.fallback"
} as const

/** Values of {@link attribute}`.operation`, as the conventions for generative AI name them. */
export const operation = {
  invokeAgent: "invoke_agent",
  executeTool: "execute_tool",
  chat: "chat",
  countTokens: "count_tokens"
} as const

/**
 * Level at which runs log their states (default `Debug`). A program whose operators read logs sets `Info`: one line when
 * a run has its ID, one when its agent starts, and one when it has ended.
 */
export const RunLogLevel = Context.Reference<LogLevel.Severity>("@cogni/sandbox-core/RunLogLevel", {
  defaultValue: () => "Debug"
})
