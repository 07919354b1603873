/** A connection to an MCP server that the operator named, with the credential of one use or without. */
import * as McpClient from "@cogni/sandbox-loop/McpClient"
import { Clock, Deferred, Duration, Effect, Fiber, type Redacted, Result, type Scope } from "effect"
import * as KeyInjection from "../../KeyInjection.ts"
import * as GuardedFetch from "./GuardedFetch.ts"
import * as McpProcess from "./McpProcess.ts"
import { callSecondsMaxDefault, type McpServerRule } from "./McpServerRule.ts"

/** A server, and the values of the variables that its program gets. */
export interface McpServer {
  readonly rule: McpServerRule
  readonly environment: Readonly<Record<string, string>>
}

export interface McpSession extends Pick<McpClient.McpClient, "call" | "ended"> {
  /** The tools as they are now: listed again if the server said that they changed, and once a minute. */
  readonly tools: Effect.Effect<ReadonlyArray<McpClient.McpTool>, McpClient.McpClientFailed>
  /** Makes the next use list the tools again, which a server that hangs cannot do. */
  readonly doubt: () => void
}

/** Limits of one connection. */
export const limits = {
  /** Time until a server has answered its first request, in seconds. */
  connectSecondsMax: 20,
  /** Time until a server has listed all its tools, in seconds. */
  listSecondsMax: 20,
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
    return yield* listing(client)
  },
  Effect.timeoutOrElse({
    duration: Duration.seconds(limits.connectSecondsMax),
    orElse: () => Effect.fail(closed(`did not answer within ${limits.connectSecondsMax} s`))
  })
)

/** Adds the list of tools. A server that does not list them in time has ended, also for callers that still wait. */
const listing = Effect.fnUntraced(function* (client: McpClient.McpClient) {
  const scope = yield* Effect.scope
  const hung = yield* Deferred.make<never, McpClient.McpClientFailed>()
  let listed: ReadonlyArray<McpClient.McpTool> = []
  let listedAt = Number.NEGATIVE_INFINITY
  let asking: Fiber.Fiber<void, McpClient.McpClientFailed> | undefined
  const list = client.tools.pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(limits.listSecondsMax),
      orElse: () => {
        const late = closed(`did not list its tools within ${limits.listSecondsMax} s`)
        return Effect.andThen(Deferred.fail(hung, late), Effect.fail(late))
      }
    }),
    Effect.flatMap((tools) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        listed = tools
        listedAt = now
      })
    ),
    Effect.ensuring(
      Effect.sync(() => {
        asking = undefined
      })
    )
  )
  const ended = Effect.raceFirst(client.ended, Deferred.await(hung))
  const tools = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    if (client.hasChanged() || now - listedAt >= limits.listedSecondsMax * 1000) {
      // Not a part of the call, whose limit can be shorter.
      asking ??= yield* Effect.forkIn(list, scope)
      yield* Effect.raceFirst(ended, Fiber.join(asking))
    }
    return listed
  })
  const doubt = () => {
    listedAt = Number.NEGATIVE_INFINITY
  }
  return { call: client.call, ended, tools, doubt }
})

const overHttp = Effect.fnUntraced(function* (
  {
    allowPrivateAddresses = false,
    callSecondsMax = callSecondsMaxDefault,
    header = "authorization",
    url: address
  }: McpServerRule,
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
      // After the limit of the caller, which says what happened.
      requestSecondsMax: Math.max(callSecondsMax, limits.listSecondsMax) + 10,
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
