/**
 * Model API without a model, for the first run. Each answer is labeled as a demo and repeats the question.
 *
 * It never silently replaces a configured upstream.
 */
import * as ScriptedModelApi from "./ScriptedModelApi.ts"

/** Name of its only model. */
export const model = "demo"

const questionCharactersMax = 2000

const echo: ScriptedModelApi.Script = ({ text }) => {
  const question = text.length > questionCharactersMax ? `${text.slice(0, questionCharactersMax)}…` : text
  return { say: `This is the demo upstream; no model was asked. You said: ${question}` }
}

export const acquire = (options: Pick<ScriptedModelApi.Options, "raw"> = {}) =>
  ScriptedModelApi.acquire({ ...options, script: echo, model })
