/**
 * The tools of a session: an immutable registry from which others are made, and which is restricted for an agent.
 *
 * One registry has the host's tools; a session's registry replaces some of them by tools over its own sandbox. A
 * registry allows no calls until it is restricted to a profile. Further restrictions can only remove tools.
 */
import { ToolName } from "@cogni/sandbox-core/SandboxSpec"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Effect, Result, Schema } from "effect"
import {
  called,
  decide,
  denyAll,
  dottedName,
  type Tool,
  type ToolContext,
  ToolFailed,
  type ToolPolicy,
  wireName
} from "./Tool.ts"
import * as ToolProfile from "./ToolProfile.ts"

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

export interface ToolRegistry {
  /** Allowed tools; none until {@link ToolRegistry.restrict}. */
  readonly policy: ToolPolicy
  /** All tools in order of registration, whatever the policy. */
  readonly list: ReadonlyArray<Tool>
  /** Tools that may be called. */
  readonly offered: ReadonlyArray<Tool>
  /** Returns a registry with more tools, whose names must be new. */
  readonly register: (...tools: ReadonlyArray<Tool>) => Result.Result<ToolRegistry, ToolRegistryError>
  /** Returns a registry in which this tool replaces the one with its name. */
  readonly override: (tool: Tool) => Result.Result<ToolRegistry, ToolRegistryError>
  /** Returns a registry restricted to a profile and its overrides. */
  readonly restrict: (
    profile: ToolProfile.ToolProfile,
    overrides?: ToolProfile.ToolOverrides
  ) => Result.Result<ToolRegistry, ToolProfile.UnknownTools>
  /** Calls a tool by dotted name or wire name, if it is allowed. Each call is a span. */
  readonly call: (name: string, input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
}

export const make = (tools: ReadonlyArray<Tool> = []): Result.Result<ToolRegistry, ToolRegistryError> =>
  over([], undefined).register(...tools)

/** Without a policy, the registry is not restricted yet. A policy does not allow tools that are registered later. */
const over = (list: ReadonlyArray<Tool>, policy: ToolPolicy | undefined): ToolRegistry => {
  const held = policy ?? denyAll
  const offered = list.filter((tool) => decide(held, list, tool.name) === tool)
  return {
    policy: held,
    list,
    offered,
    register: (...more) => {
      const all = [...list]
      for (const tool of more) {
        const problem = problemOf(tool.name, all)
        if (problem !== undefined) return refuse(tool, problem)
        all.push(tool)
      }
      return Result.succeed(over(all, policy))
    },
    override: (tool) => {
      if (!list.some(({ name }) => name === tool.name)) {
        return refuse(tool, { detail: "does not exist and cannot be overridden", remedy: "Register it" })
      }
      const others = list.map((other) => (other.name === tool.name ? tool : other))
      return Result.succeed(over(others, policy))
    },
    restrict: (profile, overrides) =>
      Result.map(ToolProfile.policyOf(list, profile, overrides), ({ allowedEffects, allowedTools }) =>
        over(list, {
          allowedTools: allowedTools.filter((name) => policy?.allowedTools.includes(name) !== false),
          allowedEffects: allowedEffects.filter((effect) => policy?.allowedEffects.includes(effect) !== false)
        })
      ),
    call: (name, input, context) => call(offered, wireName(name), input, context)
  }
}

const refuse = ({ name: tool }: Tool, why: { readonly detail: string; readonly remedy: string }) =>
  Result.fail(new ToolRegistryError({ tool, ...why }))

/** Longest name that model APIs accept. */
const nameCharactersMax = 64

const isToolName = Schema.is(ToolName)

const problemOf = (name: string, there: ReadonlyArray<Tool>) => {
  // Converting the name to its dotted name and back must not change it.
  if (!isToolName(name) || name.length > nameCharactersMax || wireName(dottedName(name)) !== name) {
    return {
      detail: "has a name that model APIs do not accept",
      remedy: `Name it namespace__name, with at most ${nameCharactersMax} lower-case letters, digits and underscores`
    }
  }
  return there.some((tool) => tool.name === name)
    ? { detail: "is already registered", remedy: "Override it, or register only one of the two" }
    : undefined
}

const call = (
  offered: ReadonlyArray<Tool>,
  name: string,
  input: unknown,
  context: ToolContext
): Effect.Effect<unknown, ToolFailed> => {
  const tool = offered.find((one) => one.name === name)
  return tool === undefined
    ? // A span must not contain a name that a model made up.
      Effect.withSpan(Effect.fail(denied(offered, name)), "execute_tool", {
        attributes: {
          [Telemetry.attribute.operation]: "execute_tool",
          [Telemetry.attribute.runId]: context.runId,
          [Telemetry.attribute.errorType]: "policy_denied"
        }
      })
    : called(tool, input, context)
}

/** Unknown and forbidden tools get the same answer. */
const denied = (offered: ReadonlyArray<Tool>, name: string): ToolFailed =>
  new ToolFailed({
    code: "policy_denied",
    detail:
      `this session may not call ${JSON.stringify(name.slice(0, 100))}. ` +
      (offered.length === 0
        ? "It may call no tools"
        : `Allowed tools: ${offered.map((tool) => tool.name).join(", ")}`)
  })
