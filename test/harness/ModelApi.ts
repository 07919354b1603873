/** A model that calls the weather tool if one is offered and not yet used, and otherwise answers. */
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"

export type ModelApi = ScriptedModelApi.ScriptedModelApi

const usage = { inputTokens: 11, cachedTokens: 3, outputTokens: 5 }

export const acquire = ScriptedModelApi.acquire({
  raw: true,
  script: ({ results, tools }) =>
    tools.length > 0 && results.length === 0
      ? { usage, call: [{ name: "weather", args: { city: "Oslo" } }] }
      : { usage, say: "It is sunny in Oslo." }
})
