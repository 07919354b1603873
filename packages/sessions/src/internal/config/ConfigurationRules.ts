/** Rules that relate several keys of a configuration, and warnings about valid configurations. Pure. */
import { Result, Schema } from "effect"
import { unknownNames } from "@cogni/sandbox-loop/ToolProfile"
import { ConfigurationFile } from "./ConfigurationFile.ts"
import * as SenderPattern from "./SenderPattern.ts"

/** A message about the value at a path. */
interface Remark {
  readonly path: ReadonlyArray<string | number>
  readonly issue: string
}

const unless = (holds: boolean, path: Remark["path"], issue: string): ReadonlyArray<Remark> =>
  holds ? [] : [{ path, issue }]

/** Adds the rules that JSON Schema cannot express to the schema of a file. `toolNames`: existing tools, if known. */
export const consistent = (toolNames: ReadonlyArray<string> | undefined) =>
  ConfigurationFile.check(
    Schema.makeFilter((file) => [
      ...ofSandbox(file),
      ...ofReferences(file),
      ...ofSenders(file),
      ...ofModels(file),
      ...(toolNames === undefined ? [] : ofTools(file, toolNames))
    ])
  )

const ofSandbox = ({ sandbox }: ConfigurationFile) => [
  ...unless(
    sandbox.network === "none" || sandbox.allow_unsafe_network,
    ["sandbox", "network"],
    "Expected none: containers on one network can reach each other. internal:NAME also needs " +
      "allow_unsafe_network: true"
  ),
  ...unless(
    (sandbox.command_timeout_seconds ?? 1) <= sandbox.timeout_seconds,
    ["sandbox", "command_timeout_seconds"],
    `Expected at most timeout_seconds (${sandbox.timeout_seconds}): no command outlives its container`
  )
]

const ofReferences = ({ agent_configs, routing }: ConfigurationFile) => {
  const reference = (path: Remark["path"], agent: string) =>
    unless(Object.hasOwn(agent_configs, agent), path, "Expected the name of an agent in agent_configs")
  return [
    ...reference(["routing", "default_agent"], routing.default_agent),
    ...(["channels", "senders"] as const).flatMap((table) =>
      Object.entries(routing[table]).flatMap(([name, agent]) => reference(["routing", table, name], agent))
    )
  ]
}

const ofSenders = ({ routing }: ConfigurationFile) => {
  const seen = new Set<string>()
  return Object.keys(routing.senders).flatMap((name) => {
    const path = ["routing", "senders", name]
    const parsed = SenderPattern.parse(name)
    if (Result.isFailure(parsed)) return [{ path, issue: parsed.failure }]
    const { channel, exact } = parsed.success
    if (exact === undefined) return []
    const sender = `${channel}:${exact}`
    const isFirst = !seen.has(sender)
    seen.add(sender)
    return unless(isFirst, path, "Expected one rule for a sender: an earlier rule names the same one")
  })
}

const ofModels = ({ agent_configs, models = {} }: ConfigurationFile) => {
  const tiers = Object.keys(models)
  return Object.entries(agent_configs).flatMap(([name, { model_tier }]) =>
    unless(
      tiers.length === 0 || tiers.includes(model_tier),
      ["agent_configs", name, "model_tier"],
      `Expected a tier that has a model in models (${tiers.join(", ")}), got ${model_tier}`
    )
  )
}

const ofTools = ({ agent_configs }: ConfigurationFile, toolNames: ReadonlyArray<string>) =>
  Object.entries(agent_configs).flatMap(([name, { tool_overrides }]) =>
    (["allow", "deny"] as const).flatMap((list) =>
      tool_overrides[list].flatMap((tool, index) =>
        unless(
          unknownNames({ allow: [tool] }, toolNames).length === 0,
          ["agent_configs", name, "tool_overrides", list, index],
          `Expected an existing tool: ${toolNames.join(", ")}`
        )
      )
    )
  )

/** Warnings about agents that run, or may run, outside of containers, and about keys without an effect. */
export const warnings = ({ agent_configs, sandbox }: ConfigurationFile): ReadonlyArray<Remark> => [
  ...unless(
    sandbox.on_unavailable === "refuse",
    ["sandbox", "on_unavailable"],
    sandbox.enabled
      ? "while the engine is absent, agents run on the host, without a sandbox"
      : "has no effect while sandbox.enabled is false"
  ),
  ...unless(
    !sandbox.allow_unsafe_network || sandbox.network !== "none",
    ["sandbox", "allow_unsafe_network"],
    "has no effect with network none: remove it"
  ),
  ...unless(
    sandbox.enabled,
    ["sandbox", "enabled"],
    "no agent has a sandbox: all run on the host, if there is a host executor"
  ),
  ...Object.entries(agent_configs).flatMap(([name, agent]) =>
    unless(
      agent.sandbox || !sandbox.enabled,
      ["agent_configs", name, "sandbox"],
      "this agent runs on the host, if there is a host executor"
    )
  )
]
