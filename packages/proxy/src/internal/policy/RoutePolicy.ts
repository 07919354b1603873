/**
 * Defines which requests a run may send to a model API: method, path, size, and client headers.
 *
 * Pure, and the same for every proxy. The injected key opens far more than completions (keys, users, spend, files,
 * search: `/key/generate` is one POST away), so every route is exact; a prefix would give the rest to the agent.
 * Anything that is not listed here is refused.
 */

/** The model API that a body belongs to. */
export type Api = "chat_completions" | "responses" | "messages" | "count_tokens" | "embeddings"

export interface Route {
  readonly method: "GET" | "POST"
  readonly path: string
  /** Absent if the route calls no model. */
  readonly api?: Api | undefined
  /** Exact query strings that may pass. Any other is removed. */
  readonly queries: ReadonlyArray<string>
}

/** A client's header that is used if its whole value matches. */
export interface ClientHeader {
  readonly name: string
  /** Regular expression without anchors for the whole value. Simple enough to mean the same in PCRE. */
  readonly pattern: string
  /** Value for the upstream if the client's is missing or does not match. If absent, no header is sent. */
  readonly fallback?: string | undefined
}

/** A header, with its name in lower case. */
export type Header = readonly [name: string, value: string]

export type Decision =
  | { readonly _tag: "Allowed"; readonly route: Route; readonly query: string }
  | { readonly _tag: "Answered" }
  /** The upstream has no such API, or it is not opened. */
  | { readonly _tag: "Closed"; readonly route: Route }
  | { readonly _tag: "Refused"; readonly status: 403 | 405 | 413 }

/** All routes that reach an upstream which offers these APIs. */
export const routes: ReadonlyArray<Route> = [
  { method: "POST", path: "/v1/chat/completions", api: "chat_completions", queries: [] },
  { method: "POST", path: "/v1/responses", api: "responses", queries: [] },
  { method: "POST", path: "/v1/messages", api: "messages", queries: ["beta=true"] },
  { method: "POST", path: "/v1/messages/count_tokens", api: "count_tokens", queries: ["beta=true"] },
  { method: "GET", path: "/v1/models", queries: [] }
]

/** Route of embeddings, for an upstream whose profile opens them. */
export const embeddings: Route = { method: "POST", path: "/v1/embeddings", api: "embeddings", queries: [] }

/** Path that the proxy itself answers, to show that it is listening. */
export const healthPath = "/health"

/** Maximum size of a request body, enough for a long conversation with images. */
export const requestBytesMax = 32 * 1024 * 1024

/**
 * Values of Anthropic's `anthropic-beta` header that a client may use. They affect the format of a conversation and the
 * amount of thinking. Betas that raise the price, keep state, or make the provider fetch or execute are not allowed.
 */
const betaNames: ReadonlyArray<string> = [
  "advanced-tool-use-2025-11-20",
  "claude-code-20250219",
  "context-management-2025-06-27",
  "effort-2025-11-24",
  "fine-grained-tool-streaming-2025-05-14",
  "interleaved-thinking-2025-05-14",
  "prompt-caching-2024-07-31",
  "prompt-caching-scope-2026-01-05",
  "structured-outputs-2025-11-13",
  "thinking-display-updates-2026-08-18",
  "token-efficient-tools-2025-02-19"
]

const mediaType = "(?:application/json|text/event-stream|[*]/[*])"

/** Client headers that are used. All others are ignored. */
export const clientHeaders: ReadonlyArray<ClientHeader> = [
  { name: "accept", pattern: `${mediaType}(?:, ?${mediaType}){0,3}`, fallback: "*/*" },
  { name: "anthropic-version", pattern: "[0-9]{4}-[0-9]{2}-[0-9]{2}" }
]

export const decide = (request: {
  readonly method: string
  /** As written in the request line. */
  readonly target: string
  readonly bodyBytes?: number | undefined
  /** Returns whether the upstream offers an API (default: all but embeddings). */
  readonly isOpen?: ((api: Api) => boolean) | undefined
}): Decision => {
  const mark = request.target.indexOf("?")
  const path = mark === -1 ? request.target : request.target.slice(0, mark)
  const query = mark === -1 ? "" : request.target.slice(mark + 1)
  if (path === healthPath) return { _tag: "Answered" }
  const { isOpen = isStandard } = request
  const route = [...routes, embeddings].find((candidate) => candidate.path === path)
  if (route === undefined) return { _tag: "Refused", status: 403 }
  if (route.api === "embeddings" && !isOpen(route.api)) return { _tag: "Refused", status: 403 }
  if (route.method !== request.method) return { _tag: "Refused", status: 405 }
  if (route.api !== undefined && !isOpen(route.api)) return { _tag: "Closed", route }
  if ((request.bodyBytes ?? 0) > requestBytesMax) return { _tag: "Refused", status: 413 }
  return { _tag: "Allowed", route, query: route.queries.includes(query) ? query : "" }
}

const isStandard = (api: Api): boolean => api !== "embeddings"

/**
 * Returns the client's headers that are used. A header that occurs twice counts as missing. A header without a fallback
 * is used only if its name is among these.
 */
export const admit = (
  headers: ReadonlyArray<Header>,
  names: ReadonlyArray<string> = clientHeaders.map(({ name }) => name)
): ReadonlyArray<Header> =>
  clientHeaders.flatMap(({ fallback, name, pattern }): ReadonlyArray<Header> => {
    if (fallback === undefined && !names.includes(name)) return []
    const values = headers.filter(([candidate]) => candidate.toLowerCase() === name).map(([, value]) => value)
    const value =
      values.length === 1 && new RegExp(`^(?:${pattern})$`, "u").test(values[0]!) ? values[0] : fallback
    return value === undefined ? [] : [[name, value]]
  })

/** Returns the allowed betas that a client requests, each once. */
export const betas = (headers: ReadonlyArray<Header>): ReadonlyArray<string> => {
  const asked = new Set(
    headers
      .filter(([name]) => name.toLowerCase() === "anthropic-beta")
      .flatMap(([, value]) => value.split(","))
      .map((name) => name.trim())
  )
  return betaNames.filter((name) => asked.has(name))
}
