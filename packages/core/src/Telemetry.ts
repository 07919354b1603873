/**
 * The only place that spells a span attribute.
 *
 * OpenTelemetry semantic conventions where they exist (`container.*`, `gen_ai.*`, `error.type`), `sandbox.*` where
 * they do not. No attribute ever holds a prompt, an output or a credential.
 */

/** @category constants */
export const attribute = {
  runId: "sandbox.run.id",
  phase: "sandbox.phase",
  exitCode: "process.exit.code",
  errorType: "error.type",
  containerId: "container.id",
  containerImage: "container.image.name",
  containerRuntime: "container.runtime.name",
  model: "gen_ai.request.model",
  memoryPeakBytes: "sandbox.memory.peak_bytes",
  outputBytes: "sandbox.output.bytes",
  llmCalls: "sandbox.llm.calls"
} as const
