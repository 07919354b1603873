/**
 * Renders the configuration of one run's nginx.
 *
 * Pure. Request headers are off and are added back one by one. Each route is exact. Nothing is buffered in either
 * direction. An answer may pause as long as the run lasts. The configuration holds the key, so the proxy receives it on
 * its standard input, and it is never written to a disk of the host.
 *
 * Plain nginx can neither inspect bodies nor remove response headers by a pattern. The headers of LiteLLM and of
 * providers behind it are removed by name (`ProxyAnswers`); one with a new name reaches the agent.
 */
import { type Directive, type Literals, block, directive, makeLiterals, print } from "./NginxSyntax.ts"
import * as ProxyAnswers from "../policy/ProxyAnswers.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import type { Address } from "../../Upstream.ts"
import * as UpstreamProfile from "../../UpstreamProfile.ts"

export interface NginxConfig {
  readonly address: Address
  /** Kind of the upstream (default: LiteLLM). */
  readonly profile?: UpstreamProfile.UpstreamProfile | undefined
  /** Path to the upstream: through the host's relay, or by name on an internal network. */
  readonly via: "relay" | "network"
  /** Result of `KeyInjection.inject` for a client without headers. */
  readonly headers: ReadonlyArray<RoutePolicy.Header>
  /** Timeout for a silent upstream, which is as long as the run may last. */
  readonly runtimeSecondsMax: number
  readonly requestBytesMax?: number | undefined
  /** Maximum concurrent requests. Further ones are answered with 429. */
  readonly concurrentRequestsMax?: number | undefined
  /** Maximum rate. Requests above it are answered with 429 and not logged, which bounds the log. */
  readonly requestsPerSecondMax?: number | undefined
}

/** Paths inside the proxy container. */
export const paths = {
  listen: "/llm-sock/llm.sock",
  relay: "/upstream/upstream.sock",
  accessLog: "/audit/access.log",
  errorLog: "/audit/error.log"
} as const

/** Connections of the nginx of one run. */
export const connectionsMax = 1024

export const defaults = { concurrentRequestsMax: 64, requestsPerSecondMax: 50 } as const

export const render = (config: NginxConfig): string => {
  const literals = makeLiterals()
  const logErrors = [
    directive("error_log", "stderr", "error"),
    directive("error_log", paths.errorLog, "error")
  ]
  const server = [
    directive("listen", `unix:${paths.listen}`, "backlog=1024"),
    directive("limit_conn", "calls", String(config.concurrentRequestsMax ?? defaults.concurrentRequestsMax)),
    directive("limit_req", "zone=rate", `burst=${4 * rateOf(config)}`, "nodelay"),
    ...serving(config, literals, {
      headers: config.headers.map(([name, value]) => [name, literals.reference(value)]),
      relay: paths.relay,
      // Errors are logged only here, within the rate: they show broken answers.
      pass: logErrors,
      // Refuses in the access phase. A `return` would answer before the phase that applies the rate limit.
      refuse: [directive("deny", "all")]
    })
  ]
  return print([
    ...processSettings(connectionsMax),
    ...logErrors,
    block(
      "http",
      [],
      [
        ...literals.directives(),
        ...logging(),
        ...limits(config),
        ...http(config),
        block("server", [], server)
      ]
    )
  ])
}

/** Settings of the process. */
export const processSettings = (connections: number): ReadonlyArray<Directive> => [
  directive("worker_processes", "1"),
  directive("daemon", "off"),
  directive("pid", "/tmp/nginx.pid"),
  directive("worker_shutdown_timeout", "2s"),
  block("events", [], [directive("worker_connections", String(connections))])
]

/** How requests of a server are attributed to a run. */
interface Attribution {
  /** Headers of every request to the upstream, with arguments that may name variables. */
  readonly headers: ReadonlyArray<RoutePolicy.Header>
  /** Path of the relay's socket. */
  readonly relay: string
  /** Directives of every location that passes requests on. */
  readonly pass: ReadonlyArray<Directive>
  /** Directives that refuse a request with 403. */
  readonly refuse: ReadonlyArray<Directive>
  /** Errors in addition to those of every proxy. */
  readonly errors?: ReadonlyArray<ProxyAnswers.ProxyError> | undefined
}

/** Directives of a server: the exact routes, and an answer to every other request. */
export const serving = (
  config: Omit<NginxConfig, "headers">,
  literals: Literals,
  attribution: Attribution
): ReadonlyArray<Directive> => {
  const { errors = [], refuse } = attribution
  return [
    directive("add_header", "X-Request-Id", "$request_id", "always"),
    ...[...ProxyAnswers.errors, ...errors].flatMap((error) => errorPage(error, literals.reference)),
    block(
      "location",
      ["=", RoutePolicy.healthPath],
      [directive("access_log", "off"), directive("return", "200", literals.reference('{"ok":true}'))]
    ),
    ...(config.via === "network" ? [directive("set", "$upstream_authority", config.address.authority)] : []),
    // Set once for all locations. A location with its own `proxy_set_header` would inherit none of these.
    ...requestHeaders(config, attribution),
    ...routesOf(config).flatMap((route) => [entrance(route), passage(route, config, attribution)]),
    block("location", ["/"], refuse),
    block("location", ["=", refusePath], [directive("internal"), ...refuse]),
    block(
      "location",
      ["=", refuseMethod],
      [
        directive("internal"),
        ...refuse,
        directive("error_page", "403", "=405", "/-/method_not_allowed"),
        directive("error_page", "429", "/-/too_many_requests"),
        ...errors.map(({ code, statuses }) => directive("error_page", ...statuses.map(String), `/-/${code}`))
      ]
    )
  ]
}

const profileOf = ({ profile = UpstreamProfile.profiles.litellm }: Pick<NginxConfig, "profile">) => profile

/** Routes of the APIs that the upstream offers. Any other is refused like an unknown path. */
const routesOf = (config: Pick<NginxConfig, "profile">): ReadonlyArray<RoutePolicy.Route> =>
  RoutePolicy.routes.filter(({ api }) => api === undefined || UpstreamProfile.isOpen(profileOf(config), api))

const clientHeadersOf = (config: Pick<NginxConfig, "profile">): ReadonlyArray<RoutePolicy.ClientHeader> =>
  RoutePolicy.clientHeaders.filter(
    ({ fallback, name }) =>
      fallback !== undefined || profileOf(config).clientHeaders.some((allowed) => allowed === name)
  )

const rateOf = (config: Pick<NginxConfig, "requestsPerSecondMax">) =>
  config.requestsPerSecondMax ?? defaults.requestsPerSecondMax

const logging = (): ReadonlyArray<Directive> => [
  directive("log_format", "call", "escape=json", logFormat(logFields)),
  directive("access_log", paths.accessLog, "call", "if=$is_logged"),
  // Requests above the rate, or refused before the rate is checked, cost an agent nothing. They must not fill the
  // host's disk, so the access log omits them, and so does the error log: they cause no critical errors.
  map("$limit_req_status", "$is_logged", [["PASSED", "1"]], "0")
]

const limits = (config: NginxConfig): ReadonlyArray<Directive> => [
  directive("limit_conn_zone", "run", "zone=calls:32k"),
  directive("limit_conn_status", "429"),
  directive("limit_conn_log_level", "info"),
  directive("limit_req_zone", "run", "zone=rate:32k", `rate=${rateOf(config)}r/s`),
  directive("limit_req_status", "429"),
  directive("limit_req_log_level", "info")
]

/** Variables of the log. */
const loggedText = (): ReadonlyArray<Directive> => [
  directive("error_log", "stderr", "crit"),
  // The client's text is kept short and printable, because it must not fill a disk or break a terminal.
  map("$request_uri", "$logged_target", [["~^(?<logged_head>[ -~]{0,256})", "$logged_head"]]),
  // To nginx, an error page is a separate request, which is always a GET.
  map("$request", "$logged_method", [["~^(?<method_head>[A-Z]{1,16}) ", "$method_head"]])
]

/** Directives for passing a request on: only the client's body passes, and nothing is buffered in either direction. */
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

/** Directives for all requests, without limits per run and without a log. */
export const http = (config: Omit<NginxConfig, "headers">): ReadonlyArray<Directive> => {
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
    ...loggedText(),
    map("$request_uri", "$target_path", [["~^(?<target_head>[^?]*)", "$target_head"]]),
    ...clientHeadersOf(config).map(({ fallback, name, pattern }) =>
      map(
        `$http_${variable(name)}`,
        `$client_${variable(name)}`,
        [[`~^(?:${pattern})\\z`, `$http_${variable(name)}`]],
        fallback
      )
    ),
    ...routesOf(config)
      .filter(({ queries }) => queries.length > 0)
      .map(({ path, queries }) =>
        // Patterns, because a `map` compares plain strings without regard to case.
        map(
          "$args",
          queryVariable(path),
          queries.map((query) => [`~^${query.replaceAll(/[^A-Za-z0-9=_&-]/gu, "[$&]")}\\z`, query])
        )
      ),
    directive("large_client_header_buffers", "4", "8k"),
    directive("client_header_timeout", "15s"),
    // Applies between two reads: a body that stalls is dropped.
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

/** Returns all headers that the upstream receives, except those that nginx derives from the body's length. */
const requestHeaders = (
  { address, profile }: Pick<NginxConfig, "address" | "profile">,
  { headers }: Attribution
): ReadonlyArray<Directive> => {
  const clientHeaders = clientHeadersOf({ profile })
  const heard = new Set(clientHeaders.map(({ name }) => name))
  return [
    directive("proxy_set_header", "host", address.authority),
    ...headers
      .filter(([name]) => !heard.has(name))
      .map(([name, value]) => directive("proxy_set_header", name, value)),
    ...clientHeaders.map(({ name }) => directive("proxy_set_header", name, `$client_${variable(name)}`)),
    directive("proxy_set_header", "connection", "close"),
    directive("proxy_set_header", "x-request-id", "$request_id")
  ]
}

const passagePath = (route: RoutePolicy.Route) => `/-/pass${route.path}`

/** Location that decides whether a request passes. One that is too large ends here without being logged. */
const entrance = (route: RoutePolicy.Route): Directive =>
  block(
    "location",
    ["=", route.path],
    [
      // nginx matches the normalized path; `$target_path` is the path as written.
      block("if", ["($target_path", "!=", `${route.path})`], [directive("rewrite", "^", refusePath, "last")]),
      block(
        "if",
        ["($request_method", "!=", `${route.method})`],
        [directive("rewrite", "^", refuseMethod, "last")]
      ),
      directive("rewrite", "^", passagePath(route), "last")
    ]
  )

/** Location that passes a request on. */
const passage = (
  route: RoutePolicy.Route,
  config: Omit<NginxConfig, "headers">,
  { pass, relay }: Attribution
): Directive => {
  const { address, via } = config
  const profile = profileOf(config)
  const { pathPrefix, query } = profile
  const path = route.api === undefined ? "/models" : (profile.paths[route.api] ?? "")
  const origin = via === "relay" ? `http://unix:${relay}:` : "http://$upstream_authority"
  return block(
    "location",
    ["=", passagePath(route)],
    [
      directive("internal"),
      ...pass,
      directive(
        "set",
        "$args",
        query !== "" ? query : route.queries.length > 0 ? queryVariable(route.path) : ""
      ),
      directive("proxy_pass", `${origin}${address.basePath}${pathPrefix}${path}$is_args$args`)
    ]
  )
}

const variable = (name: string) => name.replaceAll("-", "_")

const queryVariable = (path: string) => `$query${path.replaceAll(/[^a-z0-9]/gu, "_")}`

export const map = (
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

/** Contains only values from nginx and the upstream, except for the short prefix of the target. */
export const logFields: Readonly<Record<string, string>> = {
  at: "$msec",
  requestId: "$request_id",
  method: "$logged_method",
  target: "$logged_target",
  status: "$status",
  upstreamStatus: "$upstream_status",
  upstreamCallId: "$upstream_http_x_litellm_call_id",
  upstreamGenerationId: "$upstream_http_x_generation_id",
  upstreamCost: "$upstream_http_x_litellm_response_cost",
  requestBytes: "$request_length",
  responseBytes: "$body_bytes_sent",
  seconds: "$request_time",
  firstByteSeconds: "$upstream_header_time",
  completion: "$request_completion",
  connection: "$connection"
}

export const logFormat = (fields: Readonly<Record<string, string>>): string =>
  `{${Object.entries(fields)
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
