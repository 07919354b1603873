/** What one key of a configuration says of another, and what is worth saying of one that holds. Pure. */
import { Result, Schema } from "effect"
import { unknownNames } from "@cogni/sandbox-loop/ToolProfile"
import { ConfigurationFile } from "./ConfigurationFile.ts"
import * as SenderPattern from "./SenderPattern.ts"

/** Something to say of the value at a path. */
interface Remark {
  readonly path: ReadonlyArray<string | number>
  readonly issue: string
}

const unless = (holds: boolean, path: Remark["path"], issue: string): ReadonlyArray<Remark> =>
  holds ? [] : [{ path, issue }]

/** The schema of a file with what a JSON Schema cannot say. `toolNames`: those that exist, where that is known. */
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
    "Expected none: containers on one network see each other, so that internal:NAME also needs " +
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
    unless(Object.hasOwn(agent_configs, agent), path, "Expected the name of an agent that agent_configs has")
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
    return unless(isFirst, path, "Expected one rule for a sender: one before it means the same")
  })
}

const ofModels = ({ agent_configs, models = {} }: ConfigurationFile) => {
  const tiers = Object.keys(models)
  return Object.entries(agent_configs).flatMap(([name, { model_tier }]) =>
    unless(
      tiers.length === 0 || tiers.includes(model_tier),
      ["agent_configs", name, "model_tier"],
      `Expected a tier that models has a model for (${tiers.join(", ")}), got ${model_tier}`
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
          `Expected a tool that there is: ${toolNames.join(", ")}`
        )
      )
    )
  )

/** What runs outside of containers, now or when there are none. */
export const warnings = ({ agent_configs, sandbox }: ConfigurationFile): ReadonlyArray<Remark> => [
  ...unless(
    sandbox.on_unavailable === "refuse",
    ["sandbox", "on_unavailable"],
    sandbox.enabled
      ? "while the engine is not there, agents run on the host, without a sandbox"
      : "means nothing while sandbox.enabled is false"
  ),
  ...unless(
    !sandbox.allow_unsafe_network || sandbox.network !== "none",
    ["sandbox", "allow_unsafe_network"],
    "means nothing while network is none: leave it out"
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
