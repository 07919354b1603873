/**
 * The tools of this host that use connections: for GitHub, for HTTP by the rules of `COGNI_HTTP_TOOLS_FILE`, for the
 * database of `COGNI_SQL_TOOL_FILE`, and those of the MCP servers of `COGNI_MCP_SERVERS_FILE`.
 *
 * Their broker is made when a tool is first called: most runs call none, and need neither a database nor a key for it.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as GitHubTools from "@cogni/sandbox-git-relay/forge/GitHubTools"
import { dottedName, type Tool } from "@cogni/sandbox-loop/Tool"
import { covers, toolNames, type ToolOverrides } from "@cogni/sandbox-loop/ToolProfile"
import * as HttpTools from "@cogni/sandbox-proxy/tools/HttpTools"
import * as McpTools from "@cogni/sandbox-proxy/tools/McpTools"
import { Effect, Result, type Scope } from "effect"
import * as Connections from "./Connections.ts"
import { type Refusal, refusal } from "./Failure.ts"
import type { Settings } from "./Settings.ts"
import * as SqlTool from "./SqlTool.ts"

/**
 * The tools, on behalf of the users of grants or of one user. With `toolNames`, only the MCP servers of these tools are
 * started.
 */
export const make = Effect.fnUntraced(function* (
  settings: Settings["Service"],
  user: ConnectionUser | undefined,
  toolNames?: ReadonlyArray<string>
): Effect.fn.Return<ReadonlyArray<Tool>, Refusal, Scope.Scope> {
  const rules = yield* Effect.fromResult(settings.httpTools)
  const git = Result.getOrUndefined(settings.git)
  const servers = (yield* Effect.fromResult(settings.mcpServers)).filter(
    ({ rule }) => toolNames?.some((tool) => tool.startsWith(`${rule.name}__`)) ?? true
  )
  const broker = yield* Connections.whenUsed(settings, user)
  const found = yield* Effect.all([
    GitHubTools.make({ server: git?.gitHubServer, apiUrl: git?.gitHubApi }),
    HttpTools.make(rules),
    SqlTool.make(yield* Effect.fromResult(settings.sqlTool)),
    // No run exists yet: the tools of a server with a connection are listed by the operator.
    McpTools.make(servers).pipe(
      Effect.provideService(ConnectionUser, Connections.operator(settings)),
      Effect.mapError(({ detail, remedy, server }) =>
        refusal("configuration", `COGNI_MCP_SERVERS_FILE: the MCP server ${server} ${detail}`, remedy)
      )
    )
  ]).pipe(Effect.provideService(ConnectionBroker, broker))
  return found.flat().map((tool) => (user === undefined ? tool : onBehalf(user, tool)))
})

/** A tool whose calls that have no user are on behalf of this one, in the run that calls. */
const onBehalf = (user: ConnectionUser, tool: Tool): Tool => ({
  ...tool,
  call: (input, context) =>
    Effect.flatMap(ConnectionUser, (current) =>
      Effect.provideService(
        tool.call(input, context),
        ConnectionUser,
        current ?? { ...user, runId: context.runId }
      )
    )
})

/** The dotted names of all tools that a configuration of sessions may use. */
export const namesOf = (tools: ReadonlyArray<Tool>): ReadonlyArray<string> => [
  ...toolNames,
  ...tools.map(({ name }) => dottedName(name))
]

/** The names that {@link namesOf} returns, with `SERVER.*` for the tools of MCP servers, which are not started. */
export const namesWithoutServers = Effect.fnUntraced(function* (
  settings: Settings["Service"]
): Effect.fn.Return<ReadonlyArray<string>, Refusal, Scope.Scope> {
  const servers = yield* Effect.fromResult(settings.mcpServers)
  return [...namesOf(yield* make(settings, undefined, [])), ...servers.map(({ rule }) => `${rule.name}.*`)]
})

/** Returns the tools that a chat agent names. No profile includes them: they act with credentials of the account. */
export const named = (
  tools: ReadonlyArray<Tool>,
  { allow = [], deny = [] }: ToolOverrides
): ReadonlyArray<Tool> =>
  tools.filter(({ name }) => [...allow, ...deny].some((entry) => covers(entry, dottedName(name))))
