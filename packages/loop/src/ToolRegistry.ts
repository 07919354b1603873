/**
 * The tools of a session: a value from which others are made, and which is restricted for an agent.
 *
 * One registry has the host's tools; a session's has some that are others, over its own sandbox. Until it is restricted
 * to a profile, a registry calls nothing; what it is restricted to it never has more of, however often it is restricted
 * again.
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

/** A registry cannot be what it was asked to be. */
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
  /** What may be called; nothing until {@link ToolRegistry.restrict}. */
  readonly policy: ToolPolicy
  /** All there are, in the order they came, whatever the policy says. */
  readonly list: ReadonlyArray<Tool>
  /** Those that may be called. */
  readonly offered: ReadonlyArray<Tool>
  /** With more tools: none may be there already. */
  readonly register: (...tools: ReadonlyArray<Tool>) => Result.Result<ToolRegistry, ToolRegistryError>
  /** With another tool in the place of the one that has its name. */
  readonly override: (tool: Tool) => Result.Result<ToolRegistry, ToolRegistryError>
  /** To what a profile and its overrides let through. */
  readonly restrict: (
    profile: ToolProfile.ToolProfile,
    overrides?: ToolProfile.ToolOverrides
  ) => Result.Result<ToolRegistry, ToolProfile.UnknownTools>
  /** By dotted name or wire name. Decides first, then calls; each call is a span. */
  readonly call: (name: string, input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
}

export const make = (tools: ReadonlyArray<Tool> = []): Result.Result<ToolRegistry, ToolRegistryError> =>
  over([], undefined).register(...tools)

/** Without a policy it is not restricted yet; a tool that comes later is not let in by one. */
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
        return refuse(tool, { detail: "is not there to be overridden", remedy: "Register it" })
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

/** What models' APIs take of a name at most. */
const nameCharactersMax = 64

const isToolName = Schema.is(ToolName)

const problemOf = (name: string, there: ReadonlyArray<Tool>) => {
  // It must come back as itself from the way through its dotted name.
  if (!isToolName(name) || name.length > nameCharactersMax || wireName(dottedName(name)) !== name) {
    return {
      detail: "has a name that models' APIs do not take",
      remedy: `Call it namespace__name, in lower-case letters, digits and underscores, with ${nameCharactersMax} characters at most`
    }
  }
  return there.some((tool) => tool.name === name)
    ? { detail: "is there already", remedy: "Override it, or leave one of the two out" }
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
    ? // A name that a model made up is in no span.
      Effect.withSpan(Effect.fail(denied(offered, name)), "execute_tool", {
        attributes: {
          [Telemetry.attribute.operation]: "execute_tool",
          [Telemetry.attribute.runId]: context.runId,
          [Telemetry.attribute.errorType]: "policy_denied"
        }
      })
    : called(tool, input, context)
}

/** One that does not exist and one that is not allowed are answered alike. */
const denied = (offered: ReadonlyArray<Tool>, name: string): ToolFailed =>
  new ToolFailed({
    code: "policy_denied",
    detail:
      `this session may not call ${JSON.stringify(name.slice(0, 100))}. ` +
      (offered.length === 0
        ? "It may call no tool"
        : `What it may call: ${offered.map((tool) => tool.name).join(", ")}`)
  })
