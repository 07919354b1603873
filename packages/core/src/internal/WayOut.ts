/** What a spec asks of the way to a model, and what an agent is told of it. */
import { Effect } from "effect"
import * as LlmProxy from "../LlmProxy.ts"
import { InvalidSpec } from "../SandboxError.ts"
import type { LlmAccess, SandboxSpec } from "../SandboxSpec.ts"

/** What the spec asks of the way out and this proxy cannot give. A guarantee that nobody holds is none. */
export const promised = (spec: SandboxSpec, proxy: LlmProxy.LlmProxyCapabilities) => {
  const { llm, tools } = spec
  if (llm === undefined)
    return tools.length === 0
      ? Effect.void
      : Effect.fail(
          new InvalidSpec({
            problems: ["tools: there is no llm. Tools are called over the socket of the model, so name one"]
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

/** How an agent finds its model. None of it is worth anything outside its own sandbox. */
export const environment = (llm: LlmAccess): Record<string, string> => ({
  COGNI_MODEL: llm.model,
  COGNI_SOCKET: LlmProxy.socketPath,
  OPENAI_API_BASE: LlmProxy.baseUrl,
  OPENAI_BASE_URL: `${LlmProxy.baseUrl}/v1`,
  OPENAI_API_KEY: "none",
  ANTHROPIC_BASE_URL: LlmProxy.baseUrl,
  ANTHROPIC_API_KEY: "none"
})
