/**
 * What an agent hears from the gateway itself, in the words of the API it called.
 *
 * Pure. An agent shows these as it shows its model's own errors, so each says what to do; SDKs act on them, so each has
 * the status and the type that make the official clients do the right thing: wait where waiting helps, and stop where
 * it does not (`x-should-retry` is heard by the clients of OpenAI and of Anthropic).
 */
import * as ProxyAnswers from "../policy/ProxyAnswers.ts"

/** Whose words. */
export type Dialect = "openai" | "anthropic"

/** An answer of the gateway's own. */
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
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Of the errors that every proxy has. */
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

/** The host has more to do than it can hold. */
export const busy: GatewayError = {
  status: 503,
  code: "proxy_busy",
  message: "The sandbox's proxy holds as many requests as it can. Try again in a moment.",
  retryAfterSeconds: 1
}

export const upstreamRefused: GatewayError = {
  status: 502,
  code: "upstream_refused",
  message:
    "The model's upstream does not accept the sandbox's key, or sent it elsewhere. Whoever runs this sandbox should check its URL and its key.",
  final: true
}

export const exfiltration: GatewayError = {
  status: 403,
  code: "exfiltration_suspected",
  message: "The sandbox's proxy saw a secret of this sandbox in the request, and did not let it pass.",
  final: true
}

export const inspectionFailed: GatewayError = {
  status: 413,
  code: "request_too_complex",
  message: "The sandbox's proxy could not read this request in time. Shorten the conversation.",
  final: true
}

/** Where Anthropic has another type than OpenAI. */
const anthropicTypes: Readonly<Record<number, string>> = {
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large"
}

/** Which API a path belongs to. */
export const dialectOf = (path: string): Dialect => (path.startsWith("/v1/messages") ? "anthropic" : "openai")

export const render = (error: GatewayError, dialect: Dialect): Answer => {
  // What is spent for good is no rate: OpenAI says so with a 429 of another type, Anthropic with a 402.
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

/** The models a run may name, as `GET /v1/models` lists them in both APIs. */
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

/** A tool call that gave no result. */
export const toolError = (status: number, code: string, message: string): Answer =>
  json(status, { ok: false, error: { code, message } })

export const json = (status: number, value: unknown): Answer => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value)
})

export const health: Answer = json(200, { ok: true })

const hiddenNames = new Set(ProxyAnswers.hiddenHeaders)

/** Of one connection, or tells the agent of the upstream, its keys or its money. */
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
