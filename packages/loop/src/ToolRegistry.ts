/**
 * The tools of a session: a value that is copied, changed in the copy, and restricted for an agent.
 *
 * One registry has the host's tools; each session has a copy in which some are others, over its own sandbox. Nothing
 * that happens to a copy is seen by what it was copied from. Until it is restricted to a profile, a registry calls
 * nothing; what it is restricted to it never has more of, however often it is restricted again.
 */
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { decide, denyAll, type Tool, type ToolContext, ToolFailed, type ToolPolicy } from "./Tool.ts"
import { Effect, Result, Schema } from "effect"
import * as ToolName from "./internal/ToolName.ts"
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

/** In whose name a session calls; each call has an id of its own. */
export type ToolSession = Omit<ToolContext, "requestId">

export interface ToolRegistry {
  /** What may be called; nothing until {@link ToolRegistry.restrict}. */
  readonly policy: ToolPolicy
  /** All there are, in the order they came, whatever the policy says. */
  readonly list: ReadonlyArray<Tool>
  /** Those that may be called. */
  readonly offered: ReadonlyArray<Tool>
  /** By dotted name. */
  readonly get: (name: string) => Tool | undefined
  /** With more tools: none may be there already. */
  readonly register: (...tools: ReadonlyArray<Tool>) => Result.Result<ToolRegistry, ToolRegistryError>
  /** With another tool under the dotted name of one that is there. */
  readonly override: (name: string, tool: Tool) => Result.Result<ToolRegistry, ToolRegistryError>
  /** To what a profile and its overrides let through. */
  readonly restrict: (
    profile: ToolProfile.ToolProfile,
    overrides?: ToolProfile.ToolOverrides
  ) => Result.Result<ToolRegistry, ToolProfile.UnknownTools>
  readonly clone: () => ToolRegistry
  /** By dotted name or wire name. Decides first, then calls; each call is a span. */
  readonly call: (name: string, input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
}

/** `shell.exec` as models hear it: `shell__exec`. */
export const wireName: (dotted: string) => string = ToolName.wireOf

/** `shell__exec` as people say it: `shell.exec`. */
export const dottedName: (wire: string) => string = ToolName.dottedOf

export const make = (tools: ReadonlyArray<Tool> = []): Result.Result<ToolRegistry, ToolRegistryError> =>
  empty.register(...tools)

/** By dotted name, in the order they came. */
type Tools = ReadonlyMap<string, Tool>

/** Whether a registry is restricted, and what it had then: a tool that comes later is not let in by it. */
type Restriction = ReadonlySet<string> | undefined

const of = (tools: Tools, policy: ToolPolicy, restriction: Restriction): ToolRegistry => {
  const list = [...tools.values()]
  const isOffered = (tool: Tool) => decide(policy, list, tool.name) === tool
  return {
    policy,
    list,
    offered: list.filter(isOffered),
    get: (name) => tools.get(name),
    register: (...more) => Result.map(added(tools, more), (all) => of(all, policy, restriction)),
    override: (name, tool) => Result.map(replaced(tools, name, tool), (all) => of(all, policy, restriction)),
    restrict: (profile, overrides) =>
      Result.map(ToolProfile.policyOf(list, profile, overrides), (next) => {
        const allowedTools = next.allowedTools.filter((name) => restriction?.has(name) !== false)
        const allowedEffects = next.allowedEffects.filter(
          (effect) => restriction === undefined || policy.allowedEffects.includes(effect)
        )
        return of(tools, { allowedTools, allowedEffects }, new Set(allowedTools))
      }),
    clone: () => of(new Map(tools), { ...policy }, restriction),
    call: (name, input, context) => call(list, policy, ToolName.wireOf(name), input, context)
  }
}

const empty: ToolRegistry = of(new Map(), denyAll, undefined)

const added = (tools: Tools, more: ReadonlyArray<Tool>): Result.Result<Tools, ToolRegistryError> => {
  const all = new Map(tools)
  for (const tool of more) {
    const { name } = tool
    if (!ToolName.isWire(name)) return Result.fail(misnamed(name))
    if (all.has(ToolName.dottedOf(name))) {
      return Result.fail(
        new ToolRegistryError({
          tool: name,
          detail: "is there already",
          remedy: "Override it, or leave one of the two out"
        })
      )
    }
    all.set(ToolName.dottedOf(name), tool)
  }
  return Result.succeed(all)
}

const replaced = (tools: Tools, name: string, tool: Tool): Result.Result<Tools, ToolRegistryError> => {
  if (!tools.has(name)) {
    return Result.fail(
      new ToolRegistryError({ tool: name, detail: "is not there to be overridden", remedy: "Register it" })
    )
  }
  // Under another name than its own, a model would call one tool and hear of another.
  return ToolName.dottedOf(tool.name) === name
    ? Result.succeed(new Map(tools).set(name, tool))
    : Result.fail(
        new ToolRegistryError({
          tool: name,
          detail: `cannot be overridden by ${tool.name}, which has another name`,
          remedy: "Give it the same"
        })
      )
}

const misnamed = (tool: string) =>
  new ToolRegistryError({
    tool,
    detail: "has a name that models' APIs do not take",
    remedy: `Call it namespace__name, in lower-case letters, digits and underscores, with ${ToolName.charactersMax} characters at most`
  })

/** Whoever calls has made it up. */
const callIdCharactersMax = 200

const call = (
  list: ReadonlyArray<Tool>,
  policy: ToolPolicy,
  name: string,
  input: unknown,
  context: ToolContext
): Effect.Effect<unknown, ToolFailed> => {
  const decided = decide(policy, list, name)
  const denied = decided instanceof ToolFailed
  return (denied ? Effect.fail(deniedTo(list, policy, name)) : decided.call(input, context)).pipe(
    Effect.tapError(({ code }) => Effect.annotateCurrentSpan(Telemetry.attribute.errorType, code)),
    // As OpenTelemetry's conventions for generative AI name it. A name that a model made up is in no span.
    Effect.withSpan(denied ? "execute_tool" : `execute_tool ${ToolName.dottedOf(decided.name)}`, {
      attributes: {
        [Telemetry.attribute.operation]: "execute_tool",
        [Telemetry.attribute.toolCallId]: context.requestId.slice(0, callIdCharactersMax),
        [Telemetry.attribute.runId]: context.runId,
        ...(denied ? {} : { [Telemetry.attribute.toolName]: decided.name })
      }
    })
  )
}

/** One that does not exist and one that is not allowed are answered alike. */
const deniedTo = (list: ReadonlyArray<Tool>, policy: ToolPolicy, name: string): ToolFailed => {
  const allowed = list.filter((tool) => decide(policy, list, tool.name) === tool).map((tool) => tool.name)
  return new ToolFailed({
    code: "policy_denied",
    detail:
      `this session may not call ${JSON.stringify(name.slice(0, 100))}. ` +
      (allowed.length === 0 ? "It may call no tool" : `What it may call: ${allowed.join(", ")}`)
  })
}
