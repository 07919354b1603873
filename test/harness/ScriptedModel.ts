/** A model API with a script for the task of an agent. It records bodies and credentials unchanged. */
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"

export type ScriptedModel = ScriptedModelApi.ScriptedModelApi

/** A script that sees only the requests that offer tools. */
export type Script = Parameters<typeof ScriptedModelApi.turns>[0]

export const acquire = (script: Script) =>
  ScriptedModelApi.acquire({ raw: true, script: ScriptedModelApi.turns(script) })
