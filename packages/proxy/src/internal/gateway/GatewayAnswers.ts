/**
 * Answers of the gateway itself, in the format of the API that the agent called.
 *
 * Pure. Agents show these like errors of their model, so each says what to do. SDKs act on status and type, so these
 * make the official clients retry if waiting helps, and stop if it does not. The clients of OpenAI and Anthropic obey
 * `x-should-retry`.
 */
import type { RunRefusal } from "../policy/SubagentShare.ts"
import * as ProxyAnswers from "../policy/ProxyAnswers.ts"
import type * as RoutePolicy from "../policy/RoutePolicy.ts"

/** API whose format an answer has. */
export type Dialect = "openai" | "anthropic"

/** An error of the gateway itself. */
export interface GatewayError {
  readonly status: number
  readonly code: string
  readonly message: string
  /** The part of the request that was refused. */
  readonly param?: string | undefined
  /** Seconds after which the same request may pass. */
  readonly retryAfterSeconds?: number | undefined
  /** The same request will never pass. */
  readonly final?: boolean | undefined
  /** Explanation for the audit instead of the message. The agent does not get it. */
  readonly detail?: string | undefined
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Finds one of the errors that every proxy has. */
export const known = (code: string, status?: number): GatewayError => {
  const error = ProxyAnswers.errors.find((candidate) => candidate.code === code)
  if (error === undefined) throw new TypeError(`no such answer: ${code}`)
  return { status: status ?? error.statuses[0], code, message: error.message }
}

export const unsupportedMediaType: GatewayError = {
  status: 415,
  code: "unsupported_media_type",
  message: "The sandbox's proxy reads JSON only. Send content-type: application/json, uncompressed."
}

/** The gateway is at capacity. */
export const busy: GatewayError = {
  status: 503,
  code: "proxy_busy",
  message: "The sandbox's proxy is at capacity. Try again in a moment.",
  retryAfterSeconds: 1
}

export const upstreamRefused: GatewayError = {
  status: 502,
  code: "upstream_refused",
  message:
    "The model's upstream refused the sandbox's key, or redirected the request. The operator of this sandbox should check its URL and its key.",
  final: true
}

/** The upstream of this sandbox does not have the API that the agent called. */
export const notOffered = (
  { method, path }: RoutePolicy.Route,
  open: ReadonlyArray<RoutePolicy.Route>
): GatewayError => ({
  status: 404,
  code: "api_not_offered",
  message: `The sandbox's model is not offered over ${method} ${path}. Use ${open
    .map((route) => `${route.method} ${route.path}`)
    .join(", ")}.`,
  final: true
})

/** The socket serves packages only. */
export const noModel: GatewayError = {
  status: 403,
  code: "model_not_open",
  message: "This sandbox has no model. Its proxy serves only packages.",
  final: true
}

/** The upstream refused a key that can be renewed. */
export const keyRefused: GatewayError = {
  status: 503,
  code: "upstream_key_refused",
  message: "The model's upstream refused the sandbox's key, which may have changed. Try again in a moment.",
  retryAfterSeconds: 1
}

/** The host has no key for the upstream. */
export const keyUnavailable = (detail: string, isRetryable: boolean): GatewayError => ({
  code: "upstream_key_unavailable",
  detail: `the upstream's key is not available: ${detail}`,
  ...(isRetryable
    ? {
        status: 503,
        message: "The sandbox's proxy has no key for the model at the moment. Try again in a moment.",
        retryAfterSeconds: 5
      }
    : {
        status: 502,
        message:
          "The sandbox's proxy cannot get a key for the model. The operator of this sandbox should check its key.",
        final: true
      })
})

export const exfiltration: GatewayError = {
  status: 403,
  code: "exfiltration_suspected",
  message: "The sandbox's proxy detected a secret of this sandbox in the request, and did not send it.",
  final: true
}

export const inspectionFailed: GatewayError = {
  status: 413,
  code: "request_too_complex",
  message: "The sandbox's proxy could not read this request in time. Shorten the conversation.",
  final: true
}

/** The host has a fault, which only its operator can repair. */
export const inspectorMissing: GatewayError = {
  status: 503,
  code: "proxy_fault",
  message:
    "The sandbox's proxy cannot read a request of this size, because of a fault on its host. The operator of this sandbox should read the host's log.",
  final: true
}

/** A request that the budget of the run refuses. */
export const ofBudget = ({
  detail,
  exhaustion,
  final,
  isOfSubagents,
  retryAfterSeconds
}: RunRefusal): GatewayError => ({
  // opencode repeats a 429 of a subagent until the run is over, while its main agent waits.
  status: final && isOfSubagents === true ? 402 : 429,
  code: final ? "insufficient_quota" : `${exhaustion.budget}_exceeded`,
  message: detail,
  final,
  retryAfterSeconds: final ? undefined : (retryAfterSeconds ?? 1)
})

/** Error types of Anthropic that differ from OpenAI's, by status. */
const anthropicTypes: Readonly<Record<number, string>> = {
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large"
}

/** Returns the API that a path belongs to. */
export const dialectOf = (path: string): Dialect => (path.startsWith("/v1/messages") ? "anthropic" : "openai")

export const render = (error: GatewayError, dialect: Dialect): Answer => {
  // An exhausted budget is not a rate limit: OpenAI reports it as a 429 of another type, Anthropic as a 402.
  const spent = error.final === true && error.status === 429
  const status = spent && dialect === "anthropic" ? 402 : error.status
  const { code, message, param } = error
  const body =
    dialect === "anthropic"
      ? { type: "error", error: { type: anthropicTypes[status] ?? ProxyAnswers.typeOf(status), message } }
      : {
          error: {
            message,
            type: spent ? "insufficient_quota" : ProxyAnswers.typeOf(status),
            param: param ?? null,
            code
          }
        }
  return {
    status,
    headers: {
      "content-type": "application/json",
      ...(error.retryAfterSeconds === undefined
        ? {}
        : { "retry-after": String(Math.max(1, Math.ceil(error.retryAfterSeconds))) }),
      ...(error.final === true ? { "x-should-retry": "false" } : {})
    },
    body: JSON.stringify(body)
  }
}

/** Lists the models that a run may name, in a format for `GET /v1/models` of both APIs. */
export const models = (names: ReadonlyArray<string>): Answer =>
  json(200, {
    object: "list",
    data: names.map((id) => ({
      id,
      object: "model",
      type: "model",
      display_name: id,
      created: 0,
      created_at: "1970-01-01T00:00:00Z",
      owned_by: "sandbox"
    })),
    has_more: false,
    first_id: names[0] ?? null,
    last_id: names.at(-1) ?? null
  })

/** Answer to a tool call that failed. */
export const toolError = (status: number, code: string, message: string): Answer =>
  json(status, { ok: false, error: { code, message } })

export const json = (status: number, value: unknown): Answer => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value)
})

export const health: Answer = json(200, { ok: true })

const hiddenNames = new Set(ProxyAnswers.hiddenHeaders)

/** Tests for a header that concerns one connection only, or reveals the upstream, its keys or its costs. */
export const isHidden = (name: string): boolean =>
  hiddenNames.has(name) ||
  connectionHeaders.has(name) ||
  name.startsWith("x-litellm-") ||
  name.startsWith("llm_provider-")

const connectionHeaders = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "alt-svc",
  "date"
])
