/**
 * What a run may ask of a model API: which method and path, how large, and which of its headers are heard.
 *
 * Pure, and the same for every proxy. The key that is put in opens far more than completions (keys, users, spend,
 * files, search: `/key/generate` is one POST away), so routes are exact, one by one; a prefix would hand the rest to
 * the agent. Whatever is not listed here does not pass.
 */

/** Which of a model's APIs a body belongs to. */
export type Api = "chat_completions" | "responses" | "messages" | "count_tokens"

export interface Route {
  readonly method: "GET" | "POST"
  readonly path: string
  /** Absent where no model is asked. */
  readonly api?: Api | undefined
  /** The queries that may pass, whole and exact; any other is dropped. */
  readonly queries: ReadonlyArray<string>
}

/** A header of the client that is heard, when its whole value matches. */
export interface ClientHeader {
  readonly name: string
  /** Without anchors; the whole value has to match. Plain enough to mean the same to PCRE. */
  readonly pattern: string
  /** What the upstream gets where the client's is missing or does not match. Absent: nothing. */
  readonly fallback?: string | undefined
}

/** A header, its name in lower case. */
export type Header = readonly [name: string, value: string]

export type Decision =
  | { readonly _tag: "Allowed"; readonly route: Route; readonly query: string }
  | { readonly _tag: "Answered" }
  | { readonly _tag: "Refused"; readonly status: 403 | 405 | 413 }

/** All that reaches the upstream. */
export const routes: ReadonlyArray<Route> = [
  { method: "POST", path: "/v1/chat/completions", api: "chat_completions", queries: [] },
  { method: "POST", path: "/v1/responses", api: "responses", queries: [] },
  { method: "POST", path: "/v1/messages", api: "messages", queries: ["beta=true"] },
  { method: "POST", path: "/v1/messages/count_tokens", api: "count_tokens", queries: ["beta=true"] },
  { method: "GET", path: "/v1/models", queries: [] }
]

/** Answered by the proxy itself: somebody listens. */
export const healthPath = "/health"

/** A long conversation with pictures; more is a mistake. */
export const requestBytesMax = 32 * 1024 * 1024

/**
 * What a client may switch on in the API of Anthropic, of all that `anthropic-beta` can: how a conversation is written
 * and how much is thought. Not what makes a call dearer, keeps state, or has the provider fetch and execute.
 */
export const betaNames: ReadonlyArray<string> = [
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

/** All that is heard of what a client says about itself. */
export const clientHeaders: ReadonlyArray<ClientHeader> = [
  { name: "accept", pattern: `${mediaType}(?:, ?${mediaType}){0,3}`, fallback: "*/*" },
  { name: "anthropic-version", pattern: "[0-9]{4}-[0-9]{2}-[0-9]{2}" }
]

export const decide = (request: {
  readonly method: string
  /** As it stands in the request line. */
  readonly target: string
  readonly bodyBytes?: number | undefined
}): Decision => {
  const mark = request.target.indexOf("?")
  const path = mark === -1 ? request.target : request.target.slice(0, mark)
  const query = mark === -1 ? "" : request.target.slice(mark + 1)
  if (path === healthPath) return { _tag: "Answered" }
  const route = routes.find((candidate) => candidate.path === path)
  if (route === undefined) return { _tag: "Refused", status: 403 }
  if (route.method !== request.method) return { _tag: "Refused", status: 405 }
  if ((request.bodyBytes ?? 0) > requestBytesMax) return { _tag: "Refused", status: 413 }
  return { _tag: "Allowed", route, query: route.queries.includes(query) ? query : "" }
}

/** What is heard of a client's headers. One that came twice is not heard at all. */
export const admit = (headers: ReadonlyArray<Header>): ReadonlyArray<Header> =>
  clientHeaders.flatMap(({ fallback, name, pattern }): ReadonlyArray<Header> => {
    const values = headers.filter(([candidate]) => candidate.toLowerCase() === name).map(([, value]) => value)
    const value =
      values.length === 1 && new RegExp(`^(?:${pattern})$`, "u").test(values[0]!) ? values[0] : fallback
    return value === undefined ? [] : [[name, value]]
  })

/** Which betas are heard of those that a client asks for, each once. */
export const betas = (headers: ReadonlyArray<Header>): ReadonlyArray<string> => {
  const asked = new Set(
    headers
      .filter(([name]) => name.toLowerCase() === "anthropic-beta")
      .flatMap(([, value]) => value.split(","))
      .map((name) => name.trim())
  )
  return betaNames.filter((name) => asked.has(name))
}
