/**
 * The model API of the first run: it says what it is, and what it was asked.
 *
 * It is never chosen silently where a real upstream is configured.
 */
import * as ScriptedModelApi from "./ScriptedModelApi.ts"

/** The only model it has. */
export const model = "demo"

const questionCharactersMax = 2000

const echo: ScriptedModelApi.Script = ({ text }) => {
  const question = text.length > questionCharactersMax ? `${text.slice(0, questionCharactersMax)}…` : text
  return { say: `This is the demo upstream; no model was asked. You said: ${question}` }
}

export const acquire = (options: Pick<ScriptedModelApi.Options, "raw"> = {}) =>
  ScriptedModelApi.acquire({ ...options, script: echo, model })
