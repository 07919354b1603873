/**
 * What one key of a configuration says of another, and what is worth saying of a configuration that holds.
 *
 * Looks at the tree as it was written, also where other parts of it are wrong: so everything is told at once. Pure.
 */
import { Result, Schema } from "effect"
import { ModelTier } from "../../config/AgentConfig.ts"
import { problemsMax } from "../../config/ConfigurationError.ts"
import { unknownNames } from "@cogni/sandbox-loop/ToolProfile"
import type { ConfigurationFile } from "./ConfigurationFile.ts"
import * as SenderPattern from "./SenderPattern.ts"
import { describeValue, suggest } from "./YamlIssues.ts"
import type { Finding } from "./YamlTree.ts"

/** Of a whole tree. `toolNames`: those that exist, where that is known. */
export const findings = (
  tree: unknown,
  toolNames: ReadonlyArray<string> | undefined
): ReadonlyArray<Finding> => [
  ...networkFindings(tree),
  ...timeFindings(tree),
  ...referenceFindings(tree),
  ...senderFindings(tree),
  ...modelFindings(tree),
  ...(toolNames === undefined ? [] : toolFindings(tree, toolNames))
]

const networkFindings = (tree: unknown): ReadonlyArray<Finding> => {
  const network = at(tree, "sandbox", "network")
  return typeof network === "string" &&
    network.startsWith("internal:") &&
    at(tree, "sandbox", "allow_unsafe_network") !== true
    ? [
        {
          path: ["sandbox", "network"],
          part: "value",
          message:
            "Expected none: containers on one network see each other, so that internal:NAME also needs " +
            "allow_unsafe_network: true"
        }
      ]
    : []
}

const timeFindings = (tree: unknown): ReadonlyArray<Finding> => {
  const command = at(tree, "sandbox", "command_timeout_seconds")
  const container = at(tree, "sandbox", "timeout_seconds") ?? 300
  return typeof command === "number" &&
    typeof container === "number" &&
    command > container &&
    Number.isInteger(container)
    ? [
        {
          path: ["sandbox", "command_timeout_seconds"],
          part: "value",
          message: `Expected at most timeout_seconds (${container}): no command outlives its container, got ${command}`
        }
      ]
    : []
}

const referenceFindings = (tree: unknown): ReadonlyArray<Finding> => {
  const agents = keysOf(at(tree, "agent_configs"))
  // Without agents everything would be wrong, and one problem is told already.
  if (agents.length === 0) return []
  const known = new Set(agents)
  const references: ReadonlyArray<readonly [ReadonlyArray<string>, unknown]> = [
    [["routing", "default_agent"], at(tree, "routing", "default_agent")],
    ...["channels", "senders"].flatMap((table) =>
      entriesOf(at(tree, "routing", table)).map(([key, agent]) => [["routing", table, key], agent] as const)
    )
  ]
  return references
    .flatMap(([path, agent]) => (typeof agent === "string" && !known.has(agent) ? [{ path, agent }] : []))
    .map(({ agent, path }, index) => ({
      path,
      part: "value",
      // Comparing takes its time, and of more than these nothing is told.
      message: `Expected an agent of agent_configs, got ${describeValue(agent)}${index < problemsMax ? suggest(agent, agents) : ""}`
    }))
}

const senderFindings = (tree: unknown): ReadonlyArray<Finding> => {
  const seen = new Map<string, string>()
  return keysOf(at(tree, "routing", "senders")).flatMap((key) => {
    const refuse = (message: string): ReadonlyArray<Finding> => [
      { path: ["routing", "senders", key], part: "key", message }
    ]
    // One that looks otherwise is the schema's.
    if (!SenderPattern.keyPattern.test(key)) return []
    const parsed = SenderPattern.parse(key)
    if (Result.isFailure(parsed)) return refuse(parsed.failure)
    const { channel, exact } = parsed.success
    if (exact === undefined) return []
    const sender = JSON.stringify([channel, exact])
    const before = seen.get(sender)
    seen.set(sender, key)
    return before === undefined
      ? []
      : refuse(`Expected one rule for a sender, got the same as ${describeValue(before)}`)
  })
}

const modelFindings = (tree: unknown): ReadonlyArray<Finding> => {
  const models = keysOf(at(tree, "models"))
  if (models.length === 0) return []
  return entriesOf(at(tree, "agent_configs")).flatMap(([name, agent]) => {
    const written = at(agent, "model_tier")
    const tier = written ?? "default"
    // What is no agent, or of a tier that is none, is told already.
    return isMapping(agent) && isTier(tier) && !models.includes(tier)
      ? [
          {
            path: written === undefined ? ["agent_configs", name] : ["agent_configs", name, "model_tier"],
            part: written === undefined ? ("key" as const) : ("value" as const),
            message: `Expected a tier that models has a model for (${models.join(", ")}), got ${describeValue(tier)}`
          }
        ]
      : []
  })
}

const toolFindings = (tree: unknown, toolNames: ReadonlyArray<string>): ReadonlyArray<Finding> =>
  entriesOf(at(tree, "agent_configs")).flatMap(([name, agent]) =>
    (["allow", "deny"] as const).flatMap((list) => {
      const tools = at(agent, "tool_overrides", list)
      return (Array.isArray(tools) ? (tools as ReadonlyArray<unknown>) : []).flatMap((tool, index) =>
        typeof tool === "string" && unknownNames({ [list]: [tool] }, toolNames).length > 0
          ? [
              {
                path: ["agent_configs", name, "tool_overrides", list, index],
                part: "value" as const,
                message: `Expected a tool that there is, got ${describeValue(tool)}${suggest(tool, toolNames)}`
              }
            ]
          : []
      )
    })
  )

/** What runs outside of containers, now or when there are none. */
export const warnings = ({ agent_configs, sandbox }: ConfigurationFile): ReadonlyArray<Finding> => [
  ...(sandbox.on_unavailable === "host"
    ? [
        {
          path: ["sandbox", "on_unavailable"],
          part: "value" as const,
          message: sandbox.enabled
            ? "while the engine is not there, agents run on the host, without a sandbox"
            : "means nothing while sandbox.enabled is false"
        }
      ]
    : []),
  ...(sandbox.allow_unsafe_network && sandbox.network === "none"
    ? [
        {
          path: ["sandbox", "allow_unsafe_network"],
          part: "value" as const,
          message: "means nothing while network is none: leave it out"
        }
      ]
    : []),
  ...(sandbox.enabled
    ? []
    : [
        {
          path: ["sandbox", "enabled"],
          part: "value" as const,
          message: "no agent has a sandbox: all run on the host, if there is a host executor"
        }
      ]),
  ...Object.entries(agent_configs)
    .filter(([, agent]) => sandbox.enabled && !agent.sandbox)
    .map(([name]) => ({
      path: ["agent_configs", name, "sandbox"],
      part: "value" as const,
      message: "this agent runs on the host, if there is a host executor"
    }))
]

const isTier = Schema.is(ModelTier)

const isMapping = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const entriesOf = (value: unknown): ReadonlyArray<readonly [string, unknown]> =>
  isMapping(value) ? Object.entries(value) : []

const keysOf = (value: unknown): ReadonlyArray<string> => entriesOf(value).map(([key]) => key)

const at = (value: unknown, ...path: ReadonlyArray<string>): unknown =>
  path.reduce<unknown>(
    (inner, key) =>
      typeof inner === "object" && inner !== null && Object.hasOwn(inner, key)
        ? (inner as Readonly<Record<string, unknown>>)[key]
        : undefined,
    value
  )
