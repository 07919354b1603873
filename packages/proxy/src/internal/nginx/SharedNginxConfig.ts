/**
 * Renders the configuration of an nginx that serves many runs.
 *
 * Pure. Routes, limits of sizes and headers of answers are those of the nginx of one run (`NginxConfig`).
 * `SharedProgram` chooses the identity, the headers of the upstream, the rates and the log of each request, because
 * runs come and go without a new configuration.
 */
import { type Directive, block, directive, makeLiterals, print } from "./NginxSyntax.ts"
import * as NginxConfig from "./NginxConfig.ts"
import type { ProxyError } from "../policy/ProxyAnswers.ts"
import type { Address } from "../../Upstream.ts"
import type * as UpstreamProfile from "../../UpstreamProfile.ts"
import * as SharedProgram from "./SharedProgram.ts"

export interface SharedNginxConfig {
  readonly address: Address
  readonly profile?: UpstreamProfile.UpstreamProfile | undefined
  readonly via: "relay" | "network"
  /** Names of the headers that each run has, in the order of their values. */
  readonly headerNames: ReadonlyArray<string>
  /** Timeout for a silent upstream. A run may end earlier. */
  readonly runtimeSecondsMax: number
  readonly requestBytesMax?: number | undefined
  /** Sockets, each for one run. */
  readonly slotsMax: number
  /** Open connections of one run. Further ones are closed at once. */
  readonly connectionsPerRunMax: number
  readonly tokenSecret: Uint8Array
}

/** Paths inside the proxy container. */
export const paths = {
  control: "/tmp/control.sock",
  sockets: "/sockets",
  /** Counterparts of the sockets, which no sandbox can reach. */
  inner: "/tmp",
  relays: "/upstream",
  logs: "/logs"
} as const

/** Name of a run's socket, by number. */
export const socketName = (slot: number): string => `${slot}.sock`

/** Name of the socket that all runs with a token share. */
export const tokenSocketName = "token.sock"

/** Name of a run's relay, by number. */
export const relayName = (place: number): string => `${place}.sock`

/** Name of a run's log, by number. */
export const logName = (place: number): string => `${place}.log`

/**
 * Connections of all runs together. nginx closes idle ones for new ones. Each takes some 400 bytes from the start. A
 * socket of a run counts as two, and a connection to it as three.
 */
export const connectionsMax = 14_000

/** Answer to a request that belongs to no run. */
const runUnknown: ProxyError = {
  statuses: [401],
  code: "run_unknown",
  message: "This run has ended, or its token is not valid. Only the host can start another run."
}

const { variables } = SharedProgram

const lua = (phase: string, call: string): Directive =>
  // Without `return`, nginx would ignore that a filter ends an answer.
  directive(`${phase}_by_lua`, `return require("cogni").${call}()`)

/** Variables that the program sets. Declared where no request gets, so that nothing ever resets them. */
const declared = (headersTotal: number): Directive =>
  block(
    "location",
    ["=", "/-/variables"],
    [
      directive("internal"),
      ...[
        variables.call,
        variables.run,
        variables.place,
        variables.logged,
        variables.ended,
        ...Array.from({ length: headersTotal }, (_, index) => `${variables.header}${index + 1}`)
      ].map((name) => directive("set", `$${name}`, ""))
    ]
  )

/** A log for each run. A line has the run's ID too, so that logs can be put together. */
const logging = (): ReadonlyArray<Directive> => [
  directive(
    "log_format",
    "call",
    "escape=json",
    NginxConfig.logFormat({ ...NginxConfig.logFields, run: `$${variables.run}`, completion: "$completion" })
  ),
  directive("access_log", `${paths.logs}/$${variables.place}.log`, "call", `if=$${variables.logged}`),
  directive("open_log_file_cache", "max=2000", "inactive=60s", "valid=60s"),
  // nginx does not open a log with a variable name if this directory does not exist.
  directive("root", "/tmp"),
  // nginx calls a request complete if its upstream broke off. The program sees the end of the answer.
  NginxConfig.map(`$upstream_status/$${variables.ended}/$request_completion`, "$completion", [
    ["~^/.*/OK\\z", "OK"],
    ["~/OK/OK\\z", "OK"]
  ])
]

/**
 * Accepts the connections of each run and counts them, before a request is read: a run that opens more, or never sends
 * a whole request, takes none from other runs. Each socket has its own counterpart inside the container.
 */
const entrances = ({ connectionsPerRunMax, slotsMax }: SharedNginxConfig): Directive =>
  block(
    "stream",
    [],
    [
      NginxConfig.map("$server_addr", "$slot", [
        [`~^unix:${paths.sockets}/(?<slot_number>[0-9]+)[.]sock\\z`, "$slot_number"]
      ]),
      directive("limit_conn_zone", "$server_addr", "zone=connections:4m"),
      directive("limit_conn", "connections", String(connectionsPerRunMax)),
      directive("limit_conn_log_level", "info"),
      directive("proxy_connect_timeout", "5s"),
      directive("proxy_timeout", "86400s"),
      directive("proxy_buffer_size", "8k"),
      block(
        "server",
        [],
        [
          ...Array.from({ length: slotsMax }, (_, slot) =>
            directive("listen", `unix:${paths.sockets}/${socketName(slot)}`, "backlog=256")
          ),
          directive("proxy_pass", `unix:${paths.inner}/$slot.sock`)
        ]
      )
    ]
  )

export const render = (config: SharedNginxConfig): string => {
  const literals = makeLiterals()
  const { headerNames, slotsMax } = config
  const server = [
    ...Array.from({ length: slotsMax }, (_, slot) =>
      directive("listen", `unix:${paths.inner}/${socketName(slot)}`, "backlog=256")
    ),
    directive("listen", `unix:${paths.sockets}/${tokenSocketName}`, "backlog=1024"),
    declared(headerNames.length),
    ...NginxConfig.serving(config, literals, {
      headers: headerNames.map((name, index) => [name, `$${variables.header}${index + 1}`]),
      relay: `${paths.relays}/$${variables.place}.sock`,
      pass: [lua("access", "pass")],
      refuse: [lua("access", "refuse")],
      errors: [runUnknown]
    })
  ]
  const control = [
    directive("listen", `unix:${paths.control}`),
    directive("access_log", "off"),
    block("location", ["=", "/health"], [directive("return", "200", "ok")]),
    block("location", ["=", "/control"], [lua("content", "control")]),
    block("location", ["/"], [directive("return", "404")])
  ]
  const settings = print([
    ...["ndk_http", "ngx_http_lua", "ngx_stream"].map((name) =>
      directive("load_module", `/usr/lib/nginx/modules/${name}_module.so`)
    ),
    ...NginxConfig.processSettings(connectionsMax),
    directive("error_log", "stderr", "crit")
  ])
  const inner = print(
    [
      ...literals.directives(),
      ...logging(),
      ...NginxConfig.http(config),
      directive("uninitialized_variable_warn", "off"),
      NginxConfig.map("$server_addr", `$${variables.slot}`, [
        [`~^unix:${paths.inner}/(?<slot_number>[0-9]+)[.]sock\\z`, "$slot_number"]
      ]),
      lua("body_filter", "filter"),
      lua("log", "ended"),
      block("server", [], server),
      block("server", [], control)
    ],
    "  "
  )
  const program = SharedProgram.render({ ...config, headersTotal: headerNames.length })
  return `${settings}${print([entrances(config)])}http {\n  init_by_lua_block {${program}  }\n${inner}}\n`
}
