/**
 * Names of span attributes. Only this module spells them out.
 *
 * They follow the OpenTelemetry semantic conventions where these exist (`container.*`, `gen_ai.*`, `error.type`), and
 * begin with `sandbox.*` elsewhere. No attribute ever contains a prompt, an output or a credential.
 */

export const attribute = {
  runId: "sandbox.run.id",
  agentId: "sandbox.agent.id",
  graphId: "sandbox.graph.id",
  phase: "sandbox.phase",
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
  httpMethod: "http.request.method",
  httpStatus: "http.response.status_code",
  urlPath: "url.path",
  callId: "sandbox.llm.call.id",
  callOutcome: "sandbox.llm.call.outcome",
  costUsd: "sandbox.llm.cost_usd",
  executor: "sandbox.executor",
  executorFallback: "sandbox.executor.fallback"
} as const
