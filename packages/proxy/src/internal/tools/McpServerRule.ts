/**
 * Servers of the Model Context Protocol whose tools a host offers, and what the operator says about these tools. Pure.
 *
 * A server's own annotations about its tools decide nothing. A tool that no pattern of the operator covers is not
 * offered.
 */
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import { ToolEffect } from "@cogni/sandbox-core/ToolAccess"
import { Schema } from "effect"
import { HeaderName, Origin } from "./HttpRule.ts"

/** Maximum servers of one host. */
const serversMax = 16

const text = (charactersMax: number) =>
  Schema.String.check(
    Schema.isMaxLength(charactersMax),
    Schema.makeFilter((value: string) => (value.includes("\0") ? "Expected a text without NUL" : undefined))
  )

const Variable = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,99}$/u, { expected: "the name of an environment variable" })
)

const Url = Schema.String.check(
  Schema.makeFilter((value: string) => {
    const url = value.length <= 2000 && URL.canParse(value) ? new URL(value) : undefined
    return url !== undefined &&
      /^https?:$/u.test(url.protocol) &&
      url.username + url.password + url.hash === "" &&
      url.href === value
      ? undefined
      : "Expected a whole http or https URL without a user and a fragment, as it is requested"
  })
)

/** Default time limit of one call, in seconds. */
export const callSecondsMaxDefault = 60

/** One server: a program (`command`), or an address (`url`). */
export const McpServerRule = Schema.Struct({
  /** First part of the names of its tools. */
  name: Schema.String.check(
    Schema.isPattern(/^[a-z][a-z0-9]{0,31}$/u, { expected: "1 to 32 lower-case letters and digits" })
  ),
  /** Absolute path of a program that speaks the protocol on its standard input and output. */
  command: Schema.optionalKey(
    text(1000).check(Schema.isPattern(/^\/./u, { expected: "the absolute path of a program" }))
  ),
  args: Schema.optionalKey(Schema.Array(text(10_000)).check(Schema.isMaxLength(64))),
  /** Variables of this host that the program gets. It gets no others. */
  env: Schema.optionalKey(Schema.Array(Variable).check(Schema.isMaxLength(64))),
  /** Address of the server, over streamable HTTP. */
  url: Schema.optionalKey(Url),
  /** Whether its addresses may be private or belong to this host (default false). */
  allowPrivateAddresses: Schema.optionalKey(Schema.Boolean),
  /** Connection whose credential each call gets. */
  connection: Schema.optionalKey(Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))),
  /** Header of the credential, for a URL. Default: `authorization`, as a bearer token. */
  header: Schema.optionalKey(HeaderName),
  /** Variable of the credential, for a program. */
  credentialVariable: Schema.optionalKey(Variable),
  /** Server of the connection, for a program: the only one that the program may use the credential for. */
  credentialServer: Schema.optionalKey(Origin),
  /** Effect class of the tools that a pattern covers. Other tools are not offered. The strictest one counts. */
  tools: Schema.Record(GrantPattern.ToolPattern, ToolEffect).check(
    Schema.isMinProperties(1),
    Schema.isMaxProperties(64)
  ),
  /** Time limit of one call, in seconds (default 60). */
  callSecondsMax: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 600 }))),
  /** Longest result of a call, in bytes (default 256 KiB). */
  resultBytesMax: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1024, maximum: 1024 * 1024 }))
  ),
  /** Whether this host starts without it, and without its tools, if it does not answer (default false). */
  optional: Schema.optionalKey(Schema.Boolean)
}).check(Schema.makeFilter((rule) => problemOf(rule)))

export type McpServerRule = typeof McpServerRule.Type

const problemOf = (rule: {
  readonly allowPrivateAddresses?: boolean
  readonly args?: ReadonlyArray<string>
  readonly command?: string
  readonly connection?: string
  readonly credentialServer?: string
  readonly credentialVariable?: string
  readonly env?: ReadonlyArray<string>
  readonly header?: string
  readonly url?: string
}): string | undefined => {
  const { command, connection, credentialServer, credentialVariable, env = [], url } = rule
  if ((command === undefined) === (url === undefined)) return "Expected either command or url"
  if (url !== undefined) {
    if (rule.args ?? rule.env ?? credentialVariable ?? credentialServer)
      return "args, env, credentialVariable and credentialServer need command"
    if (url.startsWith("http:") && rule.allowPrivateAddresses !== true)
      return "http needs allowPrivateAddresses"
    return rule.header !== undefined && connection === undefined ? "header needs connection" : undefined
  }
  if (rule.header !== undefined || rule.allowPrivateAddresses !== undefined)
    return "header and allowPrivateAddresses need url"
  const given = [connection, credentialVariable, credentialServer].filter((value) => value !== undefined)
  if (given.length !== 0 && given.length !== 3)
    return "connection, credentialVariable and credentialServer need each other"
  return credentialVariable !== undefined && env.includes(credentialVariable)
    ? "credentialVariable is in env, too"
    : undefined
}

export const McpServerRules = Schema.Array(McpServerRule).check(
  Schema.isMaxLength(serversMax),
  Schema.makeFilter((rules) =>
    new Set(rules.map(({ name }) => name)).size === rules.length
      ? undefined
      : "Expected a name for each server"
  )
)

/** Returns the only server that may get the credential. */
export const credentialServer = ({ credentialServer: named, url }: McpServerRule): string =>
  named ?? new URL(url!).origin

/** Returns the effect class that the operator gave a tool, or `undefined` if it is not offered. */
export const effectOf = ({ tools }: McpServerRule, tool: string): ToolEffect | undefined => {
  const given = new Set(
    Object.entries(tools).flatMap(([pattern, effect]) =>
      GrantPattern.matches(pattern, tool) ? [effect] : []
    )
  )
  return ToolEffect.literals.findLast((effect) => given.has(effect))
}

/** Returns the patterns that cover no tool. */
export const unusedPatterns = (
  { tools }: McpServerRule,
  names: ReadonlyArray<string>
): ReadonlyArray<string> =>
  Object.keys(tools).filter((pattern) => !names.some((name) => GrantPattern.matches(pattern, name)))
