/**
 * `cogni-sandbox serve`: agents and their runs over HTTP, until it is told to stop.
 *
 * Listens on this machine only unless told otherwise: it speaks plain HTTP, and a token that crosses a network in the
 * clear is everybody's.
 */
import { issuesOf } from "@cogni/sandbox-core/SandboxSpec"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as HostNames from "@cogni/sandbox-server/HostNames"
import * as ServerLimits from "@cogni/sandbox-server/ServerLimits"
import { Context, Effect, Layer, Schema } from "effect"
import { HttpServer } from "effect/http"
import { createServer, type Server } from "node:http"
import { mapLayerError, refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

/** How long answers that are under way may take once no run is left. */
const answersSecondsMax = 5

export const serve = Effect.fnUntraced(function* (input: ServeComposition.ServeInput) {
  const settings = yield* Settings
  const output = yield* Output.Output
  for (const [flag, host] of [
    ["--host", input.host],
    ["--operator-host", input.operatorHost]
  ] as const) {
    if (isLoopback(host) || input.allowRemote) continue
    return yield* refusal(
      "usage",
      `${flag} ${oneLine(host)} lets other machines connect, and this server speaks plain HTTP`,
      "Put a proxy that speaks TLS before it, and say --allow-remote"
    )
  }
  const name = input.hostNames.find((name) => HostNames.nameIn(name) === undefined)
  if (name !== undefined) {
    return yield* refusal(
      "usage",
      `--host-name ${oneLine(name)} is not a host name`,
      "Write the name alone, such as sandbox.example.com"
    )
  }
  const limits = yield* limitsOf(input)
  const { operatorHost: host, operatorPort: port } = input
  // It listens before the server, and stops after it.
  const operator =
    port === undefined ? undefined : yield* Layer.build(platform({ host, port }, "--operator-port", limits))
  const context = yield* Layer.build(
    ServeComposition.server(settings, input, operator && Layer.succeedContext(operator)).pipe(
      Layer.provideMerge(platform(input, "--port", limits))
    )
  )
  if (!settings.sandboxEnabled) {
    yield* Output.note("sandboxes are switched off: chats are refused. Switch them on: SANDBOX_ENABLED=true")
  }
  if (operator !== undefined) yield* output.stderr(`operator's port on ${urlOf(operator)}\n`)
  yield* output.stderr(`listening on ${urlOf(context)}\n`)
  return yield* Effect.never
}, Effect.scoped)

/**
 * A server listens before all is there that answers, and a request that nobody takes would wait for ever: until
 * somebody does, and once nobody does any more, each is told to come again.
 */
export const answerUntilServed = (node: Server): void => {
  const message = "the server is starting, or stopping. Ask again in a moment"
  const body = JSON.stringify({ error: { code: "unavailable", reason: "NotServing", message } })
  node.on("request", (_request, response) => {
    if (node.listenerCount("request") > 1) return
    response.writeHead(503, { "content-type": "application/json", "retry-after": "1" }).end(body)
  })
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/u.test(host)

/** The field of each flag that a number out of bounds was typed for. */
const flagOf: Partial<Record<string, string>> = {
  bodyBytesMax: "--body-limit",
  connectionsMax: "--max-connections",
  drainSecondsMax: "--drain",
  requestsPerMinutePerGrantMax: "--requests-per-minute",
  unknownRequestsPerMinuteMax: "--unknown-requests-per-minute",
  runsMax: "--max-runs",
  runsPerGrantMax: "--max-runs-per-grant",
  runsPerMinutePerGrantMax: "--runs-per-minute"
}

const limitsOf = (input: ServeComposition.ServeInput) =>
  Schema.decodeUnknownEffect(ServerLimits.ServerLimits)(ServeComposition.limitsOf(input)).pipe(
    Effect.mapError((error) => {
      const [first] = issuesOf(error)
      const field = first?.path[0] ?? ""
      return refusal(
        "usage",
        `${flagOf[field] ?? field}: ${first?.message ?? "it is no limit"}`,
        "See cogni-sandbox serve --help"
      )
    })
  )

const urlOf = (context: Context.Context<HttpServer.HttpServer>): string =>
  HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)

/** Node's own server, with its own bounds; it waits for no connection that says nothing. */
const platform = (
  { host, port }: Pick<ServeComposition.ServeInput, "host" | "port">,
  flag: "--port" | "--operator-port",
  limits: ServerLimits.ServerLimits
) =>
  Layer.unwrap(
    Effect.sync(() => {
      const node = createServer({
        headersTimeout: limits.headersSecondsMax * 1000,
        requestTimeout: limits.requestSecondsMax * 1000,
        connectionsCheckingInterval: 1000
      })
      node.maxConnections = limits.connectionsMax
      answerUntilServed(node)
      return Layer.effectDiscard(closingConnections(node)).pipe(
        Layer.provideMerge(
          NodeHttpServer.layer(() => node, {
            host,
            port,
            gracefulShutdownTimeout: `${answersSecondsMax} seconds`
          })
        ),
        mapLayerError(({ cause }) =>
          refusal(
            "unavailable",
            `cannot listen on ${oneLine(host)}:${port}: ${oneLine(String((cause as Error).message))}`,
            `Choose another: ${flag} 0 takes any that is free`
          )
        )
      )
    })
  )

/** After the last answer, and before the server waits for all connections to be closed by whoever opened them. */
const closingConnections = (node: Server) =>
  Effect.acquireRelease(Effect.void, () => Effect.sync(() => node.closeAllConnections()))
