/** `agents`: lists agents and their capabilities. Needs no engine. */
import { AgentCatalog, layer, type AgentDescriptor } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import type { Capabilities } from "@cogni/sandbox-graph-provider/agents/AgentFields"
import { Effect, Layer } from "effect"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import * as Output from "./Output.ts"
import { Settings } from "./Settings.ts"
import { columns } from "./TerminalText.ts"

export const agents = Effect.fnUntraced(
  function* (input: Output.Asked) {
    const found = yield* (yield* AgentCatalog).list
    return yield* input.output === "json" ? Output.json(found) : Output.lines(render(found))
  },
  Effect.provide(
    layer().pipe(
      Layer.provide(Layer.unwrap(Effect.map(Settings, (settings) => ConfiguredAgents.layer(settings))))
    )
  )
)

export const render = (agents: ReadonlyArray<AgentDescriptor>): ReadonlyArray<string> =>
  columns([
    ["AGENT", "NAME", "API", "CAPABILITIES"],
    ...agents.map(({ agentId, capabilities, modelApi, name }) => [
      agentId.slice(agentId.indexOf(":") + 1),
      name,
      modelApi ?? "",
      capabilities === undefined ? "" : abilities(capabilities)
    ])
  ])

const abilities = ({
  history,
  personalities,
  streaming,
  subagents,
  toolEvents,
  tools
}: Capabilities): string =>
  [
    tools ? "tools" : "no tools",
    ...(toolEvents ? ["tool events"] : []),
    `answers ${streamed[streaming]}`,
    `history as ${history === "messages" ? "messages" : "one prompt"}`,
    ...(subagents === "marked" ? ["subagents with a share"] : []),
    ...(personalities.length === 0 ? [] : [`personalities ${personalities.join(", ")}`])
  ].join(", ")

const streamed = { delta: "incrementally", message: "message by message", final: "at the end" } as const
