/**
 * Decides whether a run may call a host tool, and whether the call needs an approval first. Pure.
 *
 * A run may call the tools that its request names and its grant opens. With rules, a tool needs one that opens it; then
 * the strictest rule that covers it decides, so the order of rules does not matter, and `ask` and `closed` only take
 * away. Nothing is looked up before this decision, and no tool runs without it.
 */
import * as Schema from "effect/Schema"
import { matches, ToolPattern } from "./GrantPattern.ts"

/** Effect class of a tool: what its calls can change. From the mildest to the strictest. */
export const ToolEffect = Schema.Literals(["read_only", "state_change", "external_side_effect"])

export type ToolEffect = typeof ToolEffect.Type

/** `open`: calls run. `ask`: each call of an open tool waits for an approval. `closed`: no call runs. */
export const Access = Schema.Literals(["open", "ask", "closed"])

export type Access = typeof Access.Type

/** Access to the tools that it covers. */
export const ToolRule = Schema.Struct({
  /** Pattern of the tools' names, such as `acme__*`. */
  tool: ToolPattern,
  /** Only tools of this effect class. Default: all. */
  effect: Schema.optionalKey(ToolEffect),
  access: Access
})

export type ToolRule = typeof ToolRule.Type

/** Maximum number of rules of a grant or a run. */
export const rulesMax = 64

export const ToolRules = Schema.Array(ToolRule).check(Schema.isMaxLength(rulesMax * 2))

/** The parts of a tool that a decision depends on. */
export interface ToolClass {
  readonly name: string
  readonly effect: ToolEffect
}

/** The tools of a run. */
export interface ToolRequest {
  /** Names of the tools that the run may call. */
  readonly tools: ReadonlyArray<string>
  /** Rules for these tools. Absent: all of them are open. */
  readonly rules?: ReadonlyArray<ToolRule> | undefined
}

const isEffect = Schema.is(ToolEffect)

/** Returns the effect class of a tool. One that declares none counts as the strictest. */
export const effectOf = ({ effect }: { readonly effect?: unknown }): ToolEffect =>
  isEffect(effect) ? effect : "external_side_effect"

/** Returns the access of a run to a tool. */
export const decide = ({ rules, tools }: ToolRequest, tool: ToolClass): Access => {
  if (!tools.includes(tool.name)) return "closed"
  return rules === undefined ? "open" : strictest(rules.filter((rule) => covers(rule, tool)))
}

/** Returns whether the rules open a tool, or ask for it, in at least one effect class. */
export const mayName = (rules: ReadonlyArray<ToolRule>, name: string): boolean =>
  ToolEffect.literals.some((effect) => decide({ tools: [name], rules }, { name, effect }) !== "closed")

/**
 * Returns the rules that were meant to restrict something and cover no tool of the host: `ask` and `closed` ones. Such
 * a rule may be mistyped, and what it was meant for may be open.
 */
export const withoutTool = (
  rules: ReadonlyArray<ToolRule>,
  tools: ReadonlyArray<{ readonly name: string; readonly effect?: unknown }>
): ReadonlyArray<ToolRule> => {
  const classes = tools.map((tool) => ({ name: tool.name, effect: effectOf(tool) }))
  return rules.filter((rule) => rule.access !== "open" && !classes.some((tool) => covers(rule, tool)))
}

/** Formats a rule, such as `ask acme__*:state_change`. */
export const ruleText = ({ access, effect, tool }: ToolRule): string =>
  `${access} ${tool}${effect === undefined ? "" : `:${effect}`}`

/** A call that is about to run. */
export interface Call {
  readonly runId: string
  readonly requestId: string
  readonly tool: string
  /** SHA-256 of the arguments that the tool would get. */
  readonly argumentsDigest: string
}

/** An approval, as far as a call depends on it. */
export interface GivenApproval extends Call {
  readonly status: string
}

/** Returns whether a call may run: its tool is open, or it has an approval of exactly this call. */
export const mayRun = (access: Access, call: Call, approval: GivenApproval | undefined): boolean =>
  access === "open" ||
  (access === "ask" &&
    approval?.status === "approved" &&
    approval.runId === call.runId &&
    approval.requestId === call.requestId &&
    approval.tool === call.tool &&
    approval.argumentsDigest === call.argumentsDigest)

const covers = ({ effect, tool: pattern }: ToolRule, tool: ToolClass): boolean =>
  (effect === undefined || effect === tool.effect) && matches(pattern, tool.name)

const strictest = (rules: ReadonlyArray<ToolRule>): Access => {
  const found = new Set(rules.map(({ access }) => access))
  if (found.has("closed") || !found.has("open")) return "closed"
  return found.has("ask") ? "ask" : "open"
}
