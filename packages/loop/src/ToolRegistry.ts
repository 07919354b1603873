/**
 * The tools of a session: an immutable registry from which others are made, and which is restricted for an agent.
 *
 * One registry has the host's tools; a session's registry replaces some of them by tools over its own sandbox. A
 * registry allows no calls until it is restricted to a profile. Further restrictions can only remove tools.
 */
import { Result, Schema } from "effect"
import { type Tool, wireName } from "./Tool.ts"
import * as ToolNameProblem from "./internal/ToolNameProblem.ts"
import * as ToolProfile from "./ToolProfile.ts"
import * as ToolSet from "./ToolSet.ts"

/** A tool cannot be registered or overridden. */
export class ToolRegistryError extends Schema.TaggedError<ToolRegistryError>()("ToolRegistryError", {
  tool: Schema.String,
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the tool ${JSON.stringify(this.tool.slice(0, 100))} ${this.detail}. ${this.remedy}`
  }
}

/**
 * A tool may be called by dotted name or wire name, and only after {@link ToolRegistry.restrict}.
 *
 * `register` and `override` are for `toolsFor` of an application's own sessions: it adds a tool to those of the package,
 * or replaces one for a session. A registry restricted before does not allow the new tool.
 */
export interface ToolRegistry extends Pick<ToolSet.ToolSet, "call" | "offered"> {
  /** All tools in order of registration, allowed or not. */
  readonly list: ReadonlyArray<Tool>
  /** Returns a registry with more tools, whose names must be new. */
  readonly register: (...tools: ReadonlyArray<Tool>) => Result.Result<ToolRegistry, ToolRegistryError>
  /** Returns a registry in which this tool replaces the one with its name. */
  readonly override: (tool: Tool) => Result.Result<ToolRegistry, ToolRegistryError>
  /** Returns a registry restricted to a profile and its overrides. */
  readonly restrict: (
    profile: ToolProfile.ToolProfile,
    overrides?: ToolProfile.ToolOverrides
  ) => Result.Result<ToolRegistry, ToolProfile.UnknownTools>
}

export const make = (tools: ReadonlyArray<Tool> = []): Result.Result<ToolRegistry, ToolRegistryError> =>
  over([], undefined).register(...tools)

/**
 * `allowed` is undefined until the registry is restricted. A tool that is registered later is not in it, nor is an
 * override whose effect class differs from that of the tool that was allowed.
 */
const over = (
  list: ReadonlyArray<Tool>,
  allowed: ReadonlyArray<ToolProfile.ToolClass> | undefined
): ToolRegistry => {
  const isAllowed = ({ effect, name }: ToolProfile.ToolClass) =>
    allowed?.some((tool) => tool.name === name && tool.effect === effect) === true
  const tools = ToolSet.make(list.filter(isAllowed))
  return {
    offered: tools.offered,
    call: (name, input, context) => tools.call(wireName(name), input, context),
    list,
    register: (...more) => {
      const all = [...list]
      for (const tool of more) {
        const problem = problemOf(tool.name, all)
        if (problem !== undefined) return refuse(tool, problem)
        all.push(tool)
      }
      return Result.succeed(over(all, allowed))
    },
    override: (tool) => {
      if (!list.some(({ name }) => name === tool.name)) {
        return refuse(tool, { detail: "does not exist and cannot be overridden", remedy: "Register it" })
      }
      const others = list.map((other) => (other.name === tool.name ? tool : other))
      return Result.succeed(over(others, allowed))
    },
    restrict: (profile, overrides) =>
      Result.map(ToolProfile.allowedOf(list, profile, overrides), (found) =>
        over(list, allowed === undefined ? found : found.filter(isAllowed))
      )
  }
}

const refuse = ({ name: tool }: Tool, why: { readonly detail: string; readonly remedy: string }) =>
  Result.fail(new ToolRegistryError({ tool, ...why }))

const problemOf = (name: string, there: ReadonlyArray<Tool>) => {
  const problem = ToolNameProblem.find(name)
  if (problem !== undefined) return problem
  return there.some((tool) => tool.name === name)
    ? { detail: "is already registered", remedy: "Override it, or register only one of the two" }
    : undefined
}
