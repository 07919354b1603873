/**
 * Tools of an MCP server as they were when the host started: what agents and approvers have read. Pure.
 *
 * A tool whose name, description or arguments have changed since is another tool, which was never allowed.
 */
import type { ToolEffect } from "@cogni/sandbox-core/ToolAccess"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import type { McpTool } from "@cogni/sandbox-loop/McpClient"
import { Result } from "effect"
import { sha256 } from "../audit/AuditChain.ts"
import * as McpServerRule from "./McpServerRule.ts"

/** A tool that is offered. */
export interface Pin {
  /** Name for agents: `server__tool`. */
  readonly name: string
  /** Name at the server. */
  readonly own: string
  readonly description: string
  readonly inputSchema: Readonly<Record<string, unknown>>
  readonly effect: ToolEffect
  readonly digest: string
}

/** Limits of one server. */
export const limits = {
  toolsMax: 128,
  descriptionCharactersMax: 4000,
  schemaBytesMax: 32 * 1024
} as const

/** Returns the tools that the operator offers, or why they cannot be offered. */
export const make = (
  rule: McpServerRule.McpServerRule,
  listed: ReadonlyArray<McpTool>
): Result.Result<ReadonlyArray<Pin>, string> => {
  const pins: Array<Pin> = []
  for (const tool of listed) {
    const short = nameOf(tool.name)
    const effect = short === undefined ? undefined : McpServerRule.effectOf(rule, short)
    if (short === undefined || effect === undefined) continue
    const name = `${rule.name}__${short}`
    const problem = problemOf(name, tool, pins)
    if (problem !== undefined) return Result.fail(problem)
    pins.push({ ...tool, own: tool.name, name, effect, digest: digestOf(tool) })
  }
  return pins.length > limits.toolsMax
    ? Result.fail(`more than ${limits.toolsMax} tools are offered. Name fewer in tools`)
    : Result.succeed(pins)
}

/** Returns whether a server still has a tool as it was. */
export const isSame = ({ digest, own }: Pin, listed: ReadonlyArray<McpTool>): boolean => {
  const same = listed.filter(({ name }) => name === own)
  return same.length === 1 && digestOf(same[0]!) === digest
}

/**
 * Converts the name of a server to one that agents can call: `createIssue` and `create-issue` to `create_issue`.
 * Returns `undefined` if that cannot be done.
 */
export const nameOf = (own: string): string | undefined => {
  const name = own
    .slice(0, 200)
    .replaceAll(/([a-z0-9])([A-Z])/gu, "$1_$2")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/gu, "_")
    .replaceAll(/^_+|_+$/gu, "")
  return /^[a-z]/u.test(name) ? name : undefined
}

/** Longest name that model APIs accept. */
const nameCharactersMax = 64

const problemOf = (name: string, tool: McpTool, pins: ReadonlyArray<Pin>): string | undefined => {
  const schema = new TextEncoder().encode(JSON.stringify(tool.inputSchema))
  const called = `the tool ${JSON.stringify(tool.name.slice(0, 100))}`
  if (name.length > nameCharactersMax)
    return `${called} has a name of more than ${nameCharactersMax} characters with that of its server`
  if (pins.some((pin) => pin.name === name)) return `${called} has the same name as another one for agents`
  if (schema.byteLength > limits.schemaBytesMax || JsonSurvey.problemOf(schema) !== undefined)
    return `the schema of ${called} is larger than ${limits.schemaBytesMax} bytes, or nested too deeply`
  return tool.description.length > limits.descriptionCharactersMax
    ? `the description of ${called} is longer than ${limits.descriptionCharactersMax} characters`
    : undefined
}

const digestOf = ({ description, inputSchema, name }: McpTool): string =>
  sha256(JSON.stringify([name, description, sorted(inputSchema)]))

/** A server may write the keys of a schema in another order each time. */
const sorted = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sorted)
    : typeof value === "object" && value !== null
      ? {
          keys: Object.entries(value)
            .toSorted(([one], [other]) => (one < other ? -1 : 1))
            .map(([key, inner]) => [key, sorted(inner)])
        }
      : value
