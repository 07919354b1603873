/** A model API whose script plays the model of an agent's task: bodies and credentials are kept as they came. */
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"

export type ScriptedModel = ScriptedModelApi.ScriptedModelApi

/** Told of those requests alone that offer tools. */
export type Script = Parameters<typeof ScriptedModelApi.turns>[0]

export const acquire = (script: Script) =>
  ScriptedModelApi.acquire({ raw: true, script: ScriptedModelApi.turns(script) })
