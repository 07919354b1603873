/**
 * Tool profiles: which tools an agent gets, as data, and the exceptions of one agent.
 *
 * A tool is allowed only if the agent's profile includes it or an override names it. Unknown names are reported when
 * they are read, not when a tool is missed.
 */
import { Result, Schema } from "effect"
import { dottedName, type Tool, type ToolEffect } from "./Tool.ts"

/** From the smallest to the largest; each includes the previous ones. */
export const ToolProfile = Schema.Literals(["minimal", "messaging", "coding", "full"])

export type ToolProfile = typeof ToolProfile.Type

/** Exceptions from a profile: dotted names, or groups such as `process.*`. `deny` takes precedence. */
export interface ToolOverrides {
  readonly allow?: ReadonlyArray<string> | undefined
  readonly deny?: ReadonlyArray<string> | undefined
}

export interface ProfiledTool {
  readonly name: string
  readonly effect: ToolEffect
  /** Smallest profile that includes it. */
  readonly profile: ToolProfile
}

/** Overrides name tools that do not exist. */
export class UnknownTools extends Schema.TaggedError<UnknownTools>()("UnknownTools", {
  names: Schema.Array(Schema.String),
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `tool_overrides names unknown tools: ${this.names.join(", ")}. Known tools: ${this.known.join(", ")}`
  }
}

/** Every tool that belongs to a profile. `full` also includes all other registered tools. */
export const profiledTools: ReadonlyArray<ProfiledTool> = [
  { name: "core.get_current_time", effect: "read_only", profile: "minimal" },
  { name: "file.read", effect: "read_only", profile: "minimal" },
  { name: "file.list", effect: "read_only", profile: "minimal" },
  { name: "file.write", effect: "state_change", profile: "messaging" },
  { name: "shell.exec", effect: "state_change", profile: "messaging" },
  { name: "core.metrics_query", effect: "read_only", profile: "coding" },
  { name: "process.start", effect: "state_change", profile: "coding" },
  { name: "process.list", effect: "read_only", profile: "coding" },
  { name: "process.logs", effect: "read_only", profile: "coding" },
  { name: "process.signal", effect: "state_change", profile: "coding" },
  { name: "process.wait", effect: "read_only", profile: "coding" }
]

const order: Readonly<Record<ToolProfile, number>> = { minimal: 0, messaging: 1, coding: 2, full: 3 }

/** Effect classes that each profile allows. */
export const profileEffects: Readonly<Record<ToolProfile, ReadonlyArray<ToolEffect>>> = {
  minimal: ["read_only"],
  messaging: ["read_only", "state_change"],
  coding: ["read_only", "state_change"],
  full: ["read_only", "state_change", "external_side_effect"]
}

/** Returns whether an override's entry, a name or a group such as `process.*`, matches a tool. */
export const covers = (entry: string, name: string): boolean =>
  entry.endsWith("*") ? name.startsWith(entry.slice(0, -1)) : entry === name

/** Returns the registered tools that a profile includes, by dotted name. */
export const toolsOf = (profile: ToolProfile, registered: ReadonlyArray<string>): ReadonlyArray<string> =>
  registered.filter((name) => {
    const found = profiledTools.find((tool) => tool.name === name)
    return found === undefined ? profile === "full" : order[found.profile] <= order[profile]
  })

/** Tool names that a configuration may use, if the host adds no tools. */
export const toolNames: ReadonlyArray<string> = profiledTools.map(({ name }) => name)

/**
 * Returns the override entries that match neither a registered tool nor a tool of a profile. A registered `acme.*`
 * stands for any tool of a server that is not asked.
 */
export const unknownNames = (
  { allow = [], deny = [] }: ToolOverrides,
  registered: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const known = [...registered, ...toolNames]
  return [...new Set([...allow, ...deny])].filter(
    (entry) => !known.some((name) => covers(entry, name) || (name.endsWith(".*") && covers(name, entry)))
  )
}

/** The properties of a tool that a profile decides on. */
export type ToolClass = Pick<Tool, "name" | "effect">

/**
 * Returns the tools that a session may call. A profile includes only tools whose effect class it allows; any other tool
 * must be allowed by name.
 */
export const allowedOf = (
  tools: ReadonlyArray<ToolClass>,
  profile: ToolProfile,
  overrides: ToolOverrides = {}
): Result.Result<ReadonlyArray<ToolClass>, UnknownTools> => {
  const { allow = [], deny = [] } = overrides
  const registered = tools.map(({ name }) => dottedName(name))
  const names = unknownNames(overrides, registered)
  if (names.length > 0) {
    const known = [...new Set([...registered, ...toolNames])].toSorted()
    return Result.fail(new UnknownTools({ names, known }))
  }
  const inProfile = toolsOf(profile, registered)
  const allowed = tools.filter(({ effect, name }) => {
    const dotted = dottedName(name)
    if (deny.some((entry) => covers(entry, dotted))) return false
    return (
      allow.some((entry) => covers(entry, dotted)) ||
      (inProfile.includes(dotted) && profileEffects[profile].includes(effect))
    )
  })
  return Result.succeed(allowed)
}
