/** A connection to an MCP server that the operator named, with the credential of one use or without. */
import * as McpClient from "@cogni/sandbox-loop/McpClient"
import { Clock, Duration, Effect, type Redacted, Result, type Scope } from "effect"
import * as KeyInjection from "../../KeyInjection.ts"
import * as GuardedFetch from "./GuardedFetch.ts"
import * as McpProcess from "./McpProcess.ts"
import type { McpServerRule } from "./McpServerRule.ts"

/** A server, and the values of the variables that its program gets. */
export interface McpServer {
  readonly rule: McpServerRule
  readonly environment: Readonly<Record<string, string>>
}

export interface McpSession extends Pick<McpClient.McpClient, "call" | "ended"> {
  /** The tools as they are now: listed again if the server said that they changed, and once a minute. */
  readonly tools: Effect.Effect<ReadonlyArray<McpClient.McpTool>, McpClient.McpClientFailed>
}

/** Limits of one connection. */
export const limits = {
  /** Time until a server has answered its first request, in seconds. */
  connectSecondsMax: 20,
  /** Age of a list of tools that a call relies on, in seconds. */
  listedSecondsMax: 60,
  /** Longest answer to one HTTP request, in bytes. */
  answerBytesMax: 4 * 1024 * 1024,
  /** Time to end a session at a server, in seconds. */
  endSecondsMax: 2
} as const

/** Connects until the scope closes. */
export const open = Effect.fnUntraced(
  function* (
    { environment, rule }: McpServer,
    secret: Redacted.Redacted<string> | undefined
  ): Effect.fn.Return<McpSession, McpClient.McpClientFailed, Scope.Scope> {
    if (secret !== undefined && Result.isFailure(KeyInjection.check(secret)))
      return yield* closed("cannot get the credential: it is no plain text on one line")
    const transport =
      rule.command === undefined
        ? yield* overHttp(rule, secret)
        : yield* McpProcess.start({
            command: rule.command,
            argv: rule.args ?? [],
            env: {
              ...environment,
              ...(secret === undefined || rule.credentialVariable === undefined
                ? {}
                : KeyInjection.variable(rule.credentialVariable, secret))
            }
          })
    const client = yield* McpClient.connect(transport, rule.command === undefined ? "auto" : "handshake")
    yield* Effect.addFinalizer(() => terminated(transport))
    let listed: ReadonlyArray<McpClient.McpTool> = []
    let listedAt = Number.NEGATIVE_INFINITY
    return {
      call: client.call,
      ended: client.ended,
      tools: Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        if (client.hasChanged() || now - listedAt >= limits.listedSecondsMax * 1000) {
          listed = yield* client.tools
          listedAt = now
        }
        return listed
      })
    }
  },
  Effect.timeoutOrElse({
    duration: Duration.seconds(limits.connectSecondsMax),
    orElse: () => Effect.fail(closed(`did not answer within ${limits.connectSecondsMax} s`))
  })
)

const overHttp = Effect.fnUntraced(function* (
  { allowPrivateAddresses = false, header = "authorization", url: address }: McpServerRule,
  secret: Redacted.Redacted<string> | undefined
) {
  let why: string | undefined
  const url = new URL(address!)
  const transport: McpClient.ExplainedTransport = yield* McpClient.httpTransport(
    url,
    GuardedFetch.make({
      url,
      allowPrivateAddresses,
      answerBytesMax: limits.answerBytesMax,
      credential: secret === undefined ? undefined : { header, secret },
      onBroken: (because) => {
        why ??= because
        void transport.close()
      }
    })
  )
  return Object.assign(transport, { why: () => why })
})

/** Ends the session at a server that has sessions. It may not answer. */
const terminated = (transport: McpClient.ExplainedTransport): Effect.Effect<void> => {
  const { terminateSession } = transport as { readonly terminateSession?: () => Promise<void> }
  return terminateSession === undefined
    ? Effect.void
    : Effect.tryPromise(() => terminateSession.call(transport)).pipe(
        Effect.timeoutOption(Duration.seconds(limits.endSecondsMax)),
        Effect.ignore
      )
}

const closed = (detail: string) => new McpClient.McpClientFailed({ reason: "closed", detail })
