/**
 * The configuration of one run's nginx, as text.
 *
 * Pure. Request headers are off and come back one by one; each route is exact; nothing is buffered in either
 * direction; a silence may last as long as the run. It is handed to the proxy on its standard input and holds the
 * key, so it is never written to a disk of the host.
 *
 * What plain nginx cannot do: look into bodies, and drop response headers by a pattern. Those of LiteLLM and of
 * providers behind it are hidden by name (`ProxyAnswers`); one with a new name reaches the agent.
 */
import { type Directive, block, directive, makeLiterals, print } from "./NginxSyntax.ts"
import * as ProxyAnswers from "../policy/ProxyAnswers.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import type { Address } from "../../Upstream.ts"

export interface NginxConfig {
  readonly address: Address
  /** How the upstream is reached: through the host's relay, or by name on an internal network. */
  readonly via: "relay" | "network"
  /** What `KeyInjection.inject` made for a client that said nothing. */
  readonly headers: ReadonlyArray<RoutePolicy.Header>
  /** No silence of an upstream is cut before the run is. */
  readonly runtimeSecondsMax: number
  readonly requestBytesMax?: number | undefined
  /** Requests under way at one time; more are answered with 429. */
  readonly concurrentRequestsMax?: number | undefined
  /** A steady rate, above which requests are answered with 429 and not logged: it bounds the log. */
  readonly requestsPerSecondMax?: number | undefined
}

/** Paths inside the proxy container. */
export const paths = {
  listen: "/llm-sock/llm.sock",
  relay: "/upstream/upstream.sock",
  accessLog: "/audit/access.log",
  errorLog: "/audit/error.log"
} as const

export const defaults = { concurrentRequestsMax: 64, requestsPerSecondMax: 50 } as const

export const render = (config: NginxConfig): string => {
  const literals = makeLiterals()
  const server = [
    directive("listen", `unix:${paths.listen}`, "backlog=1024"),
    directive("limit_conn", "calls", String(config.concurrentRequestsMax ?? defaults.concurrentRequestsMax)),
    directive("limit_req", "zone=rate", `burst=${4 * rateOf(config)}`, "nodelay"),
    directive("add_header", "X-Request-Id", "$request_id", "always"),
    ...ProxyAnswers.errors.flatMap((error) => errorPage(error, literals.reference)),
    block(
      "location",
      ["=", RoutePolicy.healthPath],
      [directive("access_log", "off"), directive("return", "200", literals.reference('{"ok":true}'))]
    ),
    ...(config.via === "network" ? [directive("set", "$upstream_authority", config.address.authority)] : []),
    // Once, for all locations: one with a `proxy_set_header` of its own would inherit none of these.
    ...requestHeaders(config, literals.reference),
    ...RoutePolicy.routes.flatMap((route) => [entrance(route), passage(route, config)]),
    block("location", ["/"], refuse),
    block("location", ["=", refusePath], [directive("internal"), ...refuse]),
    block(
      "location",
      ["=", refuseMethod],
      [
        directive("internal"),
        ...refuse,
        directive("error_page", "403", "=405", "/-/method_not_allowed"),
        directive("error_page", "429", "/-/too_many_requests")
      ]
    )
  ]
  return print([
    directive("worker_processes", "1"),
    directive("daemon", "off"),
    directive("pid", "/tmp/nginx.pid"),
    directive("error_log", "stderr", "error"),
    directive("error_log", paths.errorLog, "error"),
    directive("worker_shutdown_timeout", "2s"),
    block("events", [], [directive("worker_connections", "1024")]),
    block("http", [], [...literals.directives(), ...http(config), block("server", [], server)])
  ])
}

const rateOf = (config: NginxConfig) => config.requestsPerSecondMax ?? defaults.requestsPerSecondMax

const logging = (): ReadonlyArray<Directive> => [
  directive("log_format", "call", "escape=json", logFormat),
  directive("access_log", paths.accessLog, "call", "if=$is_logged"),
  // What is over the rate, or refused before the rate is looked at, costs an agent nothing; it must not cost the host
  // a disk. In the error log as well: what a request can bring about there at no rate is less than critical.
  map("$limit_req_status", "$is_logged", [["PASSED", "1"]], "0"),
  directive("error_log", "stderr", "crit"),
  // What a client wrote is kept short and printable: it must not fill a disk, nor break a terminal.
  map("$request_uri", "$logged_target", [["~^(?<logged_head>[ -~]{0,256})", "$logged_head"]]),
  // An error page is a request of its own to nginx, and always a GET.
  map("$request", "$logged_method", [["~^(?<method_head>[A-Z]{1,16}) ", "$method_head"]])
]

/** How a request is passed on: nothing of the client's but its body, nothing held back in either direction. */
const passing = (seconds: string): ReadonlyArray<Directive> => [
  directive("proxy_http_version", "1.1"),
  directive("proxy_pass_request_headers", "off"),
  directive("proxy_buffering", "off"),
  directive("proxy_request_buffering", "off"),
  directive("proxy_buffer_size", "32k"),
  directive("proxy_buffers", "4", "32k"),
  directive("proxy_busy_buffers_size", "64k"),
  directive("proxy_connect_timeout", "10s"),
  directive("proxy_send_timeout", seconds),
  directive("proxy_read_timeout", seconds),
  directive("proxy_next_upstream", "off"),
  directive("proxy_redirect", "off"),
  directive(
    "proxy_ignore_headers",
    "X-Accel-Redirect",
    "X-Accel-Expires",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset"
  ),
  ...ProxyAnswers.hiddenHeaders.map((name) => directive("proxy_hide_header", name))
]

const http = (config: NginxConfig): ReadonlyArray<Directive> => {
  const seconds = `${config.runtimeSecondsMax}s`
  return [
    directive("server_tokens", "off"),
    directive("default_type", "application/json"),
    ...["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) =>
      directive(`${kind}_temp_path`, `/tmp/${kind}`)
    ),
    ...(config.via === "network"
      ? [directive("resolver", "127.0.0.11", "valid=10s", "ipv6=off"), directive("resolver_timeout", "5s")]
      : []),
    ...logging(),
    map("$request_uri", "$target_path", [["~^(?<target_head>[^?]*)", "$target_head"]]),
    ...RoutePolicy.clientHeaders.map(({ fallback, name, pattern }) =>
      map(
        `$http_${variable(name)}`,
        `$client_${variable(name)}`,
        [[`~^(?:${pattern})\\z`, `$http_${variable(name)}`]],
        fallback
      )
    ),
    ...RoutePolicy.routes
      .filter(({ queries }) => queries.length > 0)
      .map(({ path, queries }) =>
        // Patterns, because a `map` compares plain strings without regard to case.
        map(
          "$args",
          queryVariable(path),
          queries.map((query) => [`~^${query.replaceAll(/[^A-Za-z0-9=_&-]/gu, "[$&]")}\\z`, query])
        )
      ),
    directive("limit_conn_zone", "run", "zone=calls:32k"),
    directive("limit_conn_status", "429"),
    directive("limit_conn_log_level", "info"),
    directive("limit_req_zone", "run", "zone=rate:32k", `rate=${rateOf(config)}r/s`),
    directive("limit_req_status", "429"),
    directive("limit_req_log_level", "info"),
    directive("large_client_header_buffers", "4", "8k"),
    directive("client_header_timeout", "15s"),
    // Between two reads of a body: a body that stalls is dropped.
    directive("client_body_timeout", "15s"),
    directive("send_timeout", seconds),
    directive("keepalive_timeout", seconds),
    directive("keepalive_requests", "100000"),
    directive("client_max_body_size", String(config.requestBytesMax ?? RoutePolicy.requestBytesMax)),
    directive("client_body_buffer_size", "64k"),
    directive("underscores_in_headers", "off"),
    directive("ignore_invalid_headers", "on"),
    directive("merge_slashes", "off"),
    directive("absolute_redirect", "off"),
    ...passing(seconds)
  ]
}

const refusePath = "/-/refuse_path"
const refuseMethod = "/-/refuse_method"

/** In the access phase. A `return` would answer before the phase in which the rate is held. */
const refuse = [directive("deny", "all")]

/** Every header the upstream gets, but for those that nginx makes of the body's length. */
const requestHeaders = (
  { address, headers }: NginxConfig,
  reference: (text: string) => string
): ReadonlyArray<Directive> => {
  const heard = new Set(RoutePolicy.clientHeaders.map(({ name }) => name))
  return [
    directive("proxy_set_header", "host", address.authority),
    ...headers
      .filter(([name]) => !heard.has(name))
      .map(([name, value]) => directive("proxy_set_header", name, reference(value))),
    ...RoutePolicy.clientHeaders.map(({ name }) =>
      directive("proxy_set_header", name, `$client_${variable(name)}`)
    ),
    directive("proxy_set_header", "connection", "close"),
    directive("proxy_set_header", "x-request-id", "$request_id")
  ]
}

const passagePath = (route: RoutePolicy.Route) => `/-/pass${route.path}`

/** Where it is decided whether a request passes. One that is too large ends here, and leaves no trace. */
const entrance = (route: RoutePolicy.Route): Directive =>
  block(
    "location",
    ["=", route.path],
    [
      // nginx compares a normalised path; this is the one that was written.
      block("if", ["($target_path", "!=", `${route.path})`], [directive("rewrite", "^", refusePath, "last")]),
      block(
        "if",
        ["($request_method", "!=", `${route.method})`],
        [directive("rewrite", "^", refuseMethod, "last")]
      ),
      directive("rewrite", "^", passagePath(route), "last")
    ]
  )

/** Where it does. Only here, under the rate, is the error log kept: it tells whose answer broke off. */
const passage = (route: RoutePolicy.Route, { address, via }: NginxConfig): Directive => {
  const origin = via === "relay" ? `http://unix:${paths.relay}:` : "http://$upstream_authority"
  return block(
    "location",
    ["=", passagePath(route)],
    [
      directive("internal"),
      directive("error_log", "stderr", "error"),
      directive("error_log", paths.errorLog, "error"),
      directive("set", "$args", route.queries.length > 0 ? queryVariable(route.path) : ""),
      directive("proxy_pass", `${origin}${address.basePath}${route.path}$is_args$args`)
    ]
  )
}

const variable = (name: string) => name.replaceAll("-", "_")

const queryVariable = (path: string) => `$query${path.replaceAll(/[^a-z0-9]/gu, "_")}`

const map = (
  source: string,
  target: string,
  cases: ReadonlyArray<readonly [pattern: string, value: string]>,
  fallback = ""
): Directive =>
  block(
    "map",
    [source, target],
    [...cases.map(([pattern, value]) => directive(pattern, value)), directive("default", fallback)]
  )

/** Everything in it is written by nginx or by the upstream, but for the short start of the target. */
const logFormat = `{${Object.entries({
  at: "$msec",
  requestId: "$request_id",
  method: "$logged_method",
  target: "$logged_target",
  status: "$status",
  upstreamStatus: "$upstream_status",
  upstreamCallId: "$upstream_http_x_litellm_call_id",
  upstreamCost: "$upstream_http_x_litellm_response_cost",
  requestBytes: "$request_length",
  responseBytes: "$body_bytes_sent",
  seconds: "$request_time",
  firstByteSeconds: "$upstream_header_time",
  completion: "$request_completion",
  connection: "$connection"
})
  .map(([key, value]) => `"${key}":"${value}"`)
  .join(",")}}`

const errorPage = (
  { code, message, statuses }: ProxyAnswers.ProxyError,
  reference: (text: string) => string
): ReadonlyArray<Directive> => {
  const path = `/-/${code}`
  const type = ProxyAnswers.typeOf(statuses[0])
  const body = JSON.stringify({ error: { message, type, param: null, code } })
  return [
    directive("error_page", ...statuses.map(String), path),
    block(
      "location",
      ["=", path],
      [directive("internal"), directive("return", String(statuses[0]), reference(body))]
    )
  ]
}
