/**
 * The tools of this host that use connections: for GitHub, and for HTTP by the rules of `COGNI_HTTP_TOOLS_FILE`.
 *
 * Their broker is made when a tool is first called: most runs call none, and need neither a database nor a key for it.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as GitHubTools from "@cogni/sandbox-git-relay/forge/GitHubTools"
import { dottedName, type Tool } from "@cogni/sandbox-loop/Tool"
import { covers, toolNames, type ToolOverrides } from "@cogni/sandbox-loop/ToolProfile"
import * as HttpTools from "@cogni/sandbox-proxy/tools/HttpTools"
import { Effect, Result, type Scope } from "effect"
import * as Connections from "./Connections.ts"
import type { Refusal } from "./Failure.ts"
import type { Settings } from "./Settings.ts"

/** The tools, on behalf of the users of grants or of one user. */
export const make = Effect.fnUntraced(function* (
  settings: Settings["Service"],
  user: ConnectionUser | undefined
): Effect.fn.Return<ReadonlyArray<Tool>, Refusal, Scope.Scope> {
  const rules = yield* Effect.fromResult(settings.httpTools)
  const git = Result.getOrUndefined(settings.git)
  const broker = yield* Connections.whenUsed(settings, user)
  const found = yield* Effect.all([
    GitHubTools.make({ server: git?.gitHubServer, apiUrl: git?.gitHubApi }),
    HttpTools.make(rules)
  ]).pipe(Effect.provideService(ConnectionBroker, broker))
  return found.flat()
})

/** The dotted names of all tools that a configuration of sessions may use. */
export const namesOf = (tools: ReadonlyArray<Tool>): ReadonlyArray<string> => [
  ...toolNames,
  ...tools.map(({ name }) => dottedName(name))
]

/** Returns the tools that a chat agent names. No profile includes them: they act with credentials of the account. */
export const named = (
  tools: ReadonlyArray<Tool>,
  { allow = [], deny = [] }: ToolOverrides
): ReadonlyArray<Tool> =>
  tools.filter(({ name }) => [...allow, ...deny].some((entry) => covers(entry, dottedName(name))))
