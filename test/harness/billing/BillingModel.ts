/**
 * The model behind LiteLLM in trials of billing: a script that does what the text of a call says, with figures that
 * differ from call to call.
 */
import type * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import type * as Script from "../../../packages/proxy/src/internal/scripted/Script.ts"
import type { Prices } from "@cogni/sandbox-proxy/Prices"

/** Pause between the events of a slow answer. */
const pauseMillis = 60

const figuresOf = (number: number): Script.Figures => ({
  inputTokens: 100 + ((number * 37) % 900),
  outputTokens: 10 + ((number * 13) % 90),
  ...(number % 3 === 0 ? { cachedTokens: 64 } : {})
})

export const script: ScriptedModelApi.Script = ({ number, text }) => {
  const [what, amount = "1"] = text.split(" ")
  switch (what) {
    case "slow":
      return { _tag: "SlowStream", events: Number(amount), pauseMillis }
    case "refuse":
      return { refuse: "the script refuses this call" }
    case "fail":
      return { _tag: "Error", status: 500 }
    default:
      return { say: "word ".repeat(Number(amount)).trim(), usage: figuresOf(number) }
  }
}

/** LiteLLM's own prices of both models, in US dollars per million tokens. */
export const prices: Prices = {
  priced: { input: 2.5, output: 10, cacheRead: 1.25 },
  "priced-claude": { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75, cacheWrite1h: 6 }
}
