/**
 * `cogni-sandbox serve`: serves agents and their runs over HTTP, until a signal stops it.
 *
 * Listens only on this machine by default, because it speaks plain HTTP: on a network, anyone could read the tokens.
 */
import { issuesOf } from "@cogni/sandbox-core/SchemaIssues"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as HostNames from "@cogni/sandbox-server/HostNames"
import * as ServerLimits from "@cogni/sandbox-server/ServerLimits"
import { Context, Effect, Layer, Result, Schema } from "effect"
import { HttpServer } from "effect/http"
import { NetAddress } from "effect/net"
import { createServer, type Server } from "node:http"
import * as CompiledCode from "./CompiledCode.ts"
import type * as DurableServe from "./DurableServe.ts"
import { mapLayerError, type Refusal, refusal, refuse } from "./Failure.ts"
import * as ListenFailure from "./ListenFailure.ts"
import * as MetricsPort from "./MetricsPort.ts"
import * as Output from "./Output.ts"
import * as PoolFlags from "./PoolFlags.ts"
import * as ProxyFlags from "./ProxyFlags.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import * as TemporalFlags from "./TemporalFlags.ts"
import { oneLine } from "./TerminalText.ts"

/** Longest time for unfinished responses after the last run has ended. */
const answersSecondsMax = 5

/** Flags of a server of durable runs, by the field that they set. */
const flagsOfDurable = {
  address: "--temporal",
  namespace: "--namespace",
  noSearch: "--no-search",
  placementSecondsMax: "--placement-limit",
  taskQueue: "--queue",
  temporalApiKeyFile: "--temporal-api-key-file",
  temporalCaFile: "--temporal-ca-file",
  temporalCertFile: "--temporal-cert-file",
  temporalInsecure: "--temporal-insecure",
  temporalKeyFile: "--temporal-key-file",
  temporalServerName: "--temporal-server-name",
  temporalTls: "--temporal-tls",
  wallSecondsMax: "--time-limit"
} as const satisfies Record<Exclude<keyof typeof TemporalFlags.serve, "durable">, string>

/** Refuses flags that have an effect only with `--durable`. */
const withoutDurable = (input: DurableServe.DurableServeInput): Result.Result<void, Refusal> => {
  const [, flag] =
    Object.entries(flagsOfDurable).find(([name]) => {
      const value = input[name as keyof typeof flagsOfDurable]
      return value !== undefined && value !== false && value !== TemporalFlags.queueDefault
    }) ?? []
  return flag === undefined || input.durable
    ? Result.void
    : refuse("usage", `${flag} has no effect without --durable`, "Add --durable, or leave it out")
}

export const serve = Effect.fnUntraced(function* (input: DurableServe.DurableServeInput) {
  yield* Effect.fromResult(withoutDurable(input))
  if (!input.durable) {
    yield* PoolFlags.checked(input)
    yield* Effect.fromResult(ProxyFlags.served(input))
  }
  const settings = yield* Settings
  const output = yield* Output.Output
  for (const [flag, host] of [
    ["--host", input.host],
    ["--operator-host", input.operatorHost]
  ] as const) {
    if (isLoopback(host) || input.allowRemote) continue
    return yield* refusal(
      "usage",
      `${flag} ${oneLine(host)} lets other machines connect, but this server speaks plain HTTP`,
      "Put a TLS proxy in front of it, and add --allow-remote"
    )
  }
  const name = input.hostNames.find((name) => HostNames.nameIn(name) === undefined)
  if (name !== undefined) {
    return yield* refusal(
      "usage",
      `--host-name ${oneLine(name)} is not a host name`,
      "Write only the name, such as sandbox.example.com"
    )
  }
  const proxy = input.trustedProxies.find((address) => Result.isFailure(NetAddress.ipFromString(address)))
  if (proxy !== undefined) {
    return yield* refusal(
      "usage",
      `--trusted-proxy ${oneLine(proxy)} is not an IP address`,
      "Write the address from which the proxy connects, such as 127.0.0.1"
    )
  }
  const limits = yield* limitsOf(input)
  yield* MetricsPort.measured
  const { operatorHost: host, operatorPort: port } = input
  // The operator's port opens before the server and closes after it.
  const operator =
    port === undefined ? undefined : yield* Layer.build(platform({ host, port }, "--operator-port", limits))
  const composition = input.durable
    ? yield* Effect.promise(() => import("./DurableServe.ts"))
    : ServeComposition
  const context = yield* Layer.build(
    composition
      .server(settings, input, operator && Layer.succeedContext(operator))
      .pipe(Layer.provideMerge(platform(input, "--port", limits)))
  )
  if (!settings.sandboxEnabled && !input.durable) {
    yield* Output.note("sandboxes are disabled, so chats are refused. Enable them with SANDBOX_ENABLED=true")
  }
  if (input.auditBodies) {
    yield* Output.note(
      "--audit-bodies keeps prompts and answers, which each grant of a run's account can read"
    )
  }
  if (operator !== undefined) yield* output.stderr(`operator's port on ${urlOf(operator)}\n`)
  if (!input.noPage) yield* output.stderr(`web page on ${urlOf(context)}/sandbox\n`)
  yield* output.stderr(`listening on ${urlOf(context)}\n`)
  yield* CompiledCode.keep
  return yield* Effect.never
}, Effect.scoped)

/**
 * Answers requests with 503 and `retry-after` while the server has no handler. It listens before its handlers are ready
 * and after they are removed, and a request without a handler would wait forever.
 */
export const answerUntilServed = (node: Server): void => {
  const message = "the server is starting or stopping. Try again in a moment"
  const body = JSON.stringify({ error: { code: "unavailable", reason: "NotServing", message } })
  node.on("request", (_request, response) => {
    if (node.listenerCount("request") > 1) return
    response.writeHead(503, { "content-type": "application/json", "retry-after": "1" }).end(body)
  })
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/u.test(host)

/** Flags by the limit that they set. */
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
        `${flagOf[field] ?? field}: ${first?.message ?? "invalid limit"}`,
        "See cogni-sandbox serve --help"
      )
    })
  )

const urlOf = (context: Context.Context<HttpServer.HttpServer>): string =>
  HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)

/** Node's HTTP server, with our limits on connections and on the time that a request may take to arrive. */
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
        mapLayerError(({ cause }) => ListenFailure.refused({ host, port }, cause, flag))
      )
    })
  )

/** Closes all connections after the last response. Otherwise the server would wait until the clients close them. */
const closingConnections = (node: Server) =>
  Effect.acquireRelease(Effect.void, () => Effect.sync(() => node.closeAllConnections()))
