/** Egress of a run to its model: what the spec requires of the proxy, and the agent's environment. */
import { Effect } from "effect"
import * as LlmProxy from "../LlmProxy.ts"
import { InvalidSpec } from "../SandboxError.ts"
import type { LlmAccess, SandboxSpec } from "../SandboxSpec.ts"

/** Refuses a spec that requires more than this proxy can enforce. */
export const promised = (spec: SandboxSpec, proxy: LlmProxy.LlmProxyCapabilities) => {
  const { llm, tools } = spec
  if (llm === undefined)
    return tools.length === 0
      ? Effect.void
      : Effect.fail(
          new InvalidSpec({
            problems: [
              "tools: a run without a model has none, because they are called over the model's socket. Name a model (llm.model)"
            ]
          })
        )
  const missing = tools.filter((name) => !proxy.tools.includes(name))
  const unread = proxy.inspectsBodies
    ? []
    : [
        ...(llm.budget === undefined ? [] : ["llm.budget"]),
        ...(Object.keys(llm.models).length === 0 ? [] : ["llm.models"]),
        ...(llm.unknownFields === "drop" ? [] : ["llm.unknownFields"]),
        ...(spec.canaries === "off" ? [] : ["canaries"])
      ]
  const problems = [
    ...(llm.caller === "host" && !proxy.servesHost
      ? [
          `llm.caller: the sockets of the proxy ${proxy.name} are not on this host. Use the gateway, in process`
        ]
      : []),
    ...missing.map(
      (name) => `tools: the proxy has no ${name} (it has ${proxy.tools.join(", ") || "no tool at all"})`
    ),
    ...unread.map((field) => `${field}: the proxy ${proxy.name} does not read bodies. Use the gateway`)
  ]
  return problems.length === 0 ? Effect.void : Effect.fail(new InvalidSpec({ problems }))
}

/** Environment through which an agent finds its model. It is worthless outside its own sandbox. */
export const environment = (llm: LlmAccess): Record<string, string> => ({
  COGNI_MODEL: llm.model,
  COGNI_SOCKET: LlmProxy.socketPath,
  OPENAI_API_BASE: LlmProxy.baseUrl,
  OPENAI_BASE_URL: `${LlmProxy.baseUrl}/v1`,
  OPENAI_API_KEY: "none",
  ANTHROPIC_BASE_URL: LlmProxy.baseUrl,
  ANTHROPIC_API_KEY: "none"
})
