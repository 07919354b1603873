/**
 * Which tools an agent gets: four profiles, as data, and what one agent differs in.
 *
 * Nothing is allowed that no profile lists and no override names; a name that names nothing is an error when it is
 * read, and not one day when it is missed.
 */
import { Result, Schema } from "effect"
import { dottedName, type Tool, type ToolEffect, type ToolPolicy } from "./Tool.ts"

/** From the smallest to the largest; each has what those before it have. */
export const ToolProfile = Schema.Literals(["minimal", "messaging", "coding", "full"])

export type ToolProfile = typeof ToolProfile.Type

/** What an agent differs in: dotted names, or groups of them such as `process.*`. `deny` wins. */
export interface ToolOverrides {
  readonly allow?: ReadonlyArray<string> | undefined
  readonly deny?: ReadonlyArray<string> | undefined
}

export interface ProfiledTool {
  readonly name: string
  readonly effect: ToolEffect
  /** The smallest profile that has it. */
  readonly profile: ToolProfile
}

/** Names that name nothing. */
export class UnknownTools extends Schema.TaggedError<UnknownTools>()("UnknownTools", {
  names: Schema.Array(Schema.String),
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `tool_overrides name tools that are not there: ${this.names.join(", ")}. There are ${this.known.join(", ")}`
  }
}

/** Every tool there is a profile for. `full` has whatever else is registered, besides. */
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

/** What a call may do to the world, in each. */
export const profileEffects: Readonly<Record<ToolProfile, ReadonlyArray<ToolEffect>>> = {
  minimal: ["read_only"],
  messaging: ["read_only", "state_change"],
  coding: ["read_only", "state_change"],
  full: ["read_only", "state_change", "external_side_effect"]
}

/** Whether a name, or a group such as `process.*`, is meant by an entry of an override. */
export const covers = (entry: string, name: string): boolean =>
  entry.endsWith("*") ? name.startsWith(entry.slice(0, -1)) : entry === name

/** The tools of a profile among those that are registered, by dotted name. */
export const toolsOf = (profile: ToolProfile, registered: ReadonlyArray<string>): ReadonlyArray<string> =>
  registered.filter((name) => {
    const found = profiledTools.find((tool) => tool.name === name)
    return found === undefined ? profile === "full" : order[found.profile] <= order[profile]
  })

/** What a configuration may name, where nobody has added tools of their own. */
export const toolNames: ReadonlyArray<string> = profiledTools.map(({ name }) => name)

/** What an override's names do not name: neither a tool that is registered, nor one there is a profile for. */
export const unknownNames = (
  { allow = [], deny = [] }: ToolOverrides,
  registered: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const known = [...registered, ...toolNames]
  return [...new Set([...allow, ...deny])].filter((entry) => !known.some((name) => covers(entry, name)))
}

/**
 * What a session may call of its tools. A profile lets in what does no more to the world than it may; what does more
 * than its name promises needs to be allowed by name.
 */
export const policyOf = (
  tools: ReadonlyArray<Pick<Tool, "name" | "effect">>,
  profile: ToolProfile,
  overrides: ToolOverrides = {}
): Result.Result<ToolPolicy, UnknownTools> => {
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
  return Result.succeed({
    allowedTools: allowed.map(({ name }) => name),
    allowedEffects: [...new Set(allowed.map(({ effect }) => effect))]
  })
}
