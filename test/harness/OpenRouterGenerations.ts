/**
 * A fake of OpenRouter's `GET /api/v1/generation`, as its API reference describes it: one record by its ID, 404 for an
 * ID that it does not know or has not written yet, 401 without a valid key.
 */
import { Effect, type Scope } from "effect"
import * as LocalServer from "./LocalServer.ts"

export const apiKey = "sk-or-v1-5f0c3d1e9b7a4c26"

/** Fields of a record. Tests add wrong values. */
export type Generation = Readonly<Record<string, unknown>>

export interface OpenRouterGenerations {
  /** URL of the API, with `/api/v1`. */
  readonly url: string
  readonly generations: Array<Generation>
  /** Targets of all requests. */
  readonly requests: Array<string>
}

/** A record with OpenRouter's fields. */
export const generation = (id: string, changes: Generation = {}): Generation => ({
  id,
  upstream_id: "chatcmpl-791bcf62-080e-4568-87d0-94c72e3b4946",
  total_cost: 0.000_125,
  cache_discount: null,
  upstream_inference_cost: null,
  created_at: "2026-01-31T10:00:01.433273+00:00",
  model: "openai/gpt-5",
  app_id: null,
  streamed: true,
  cancelled: false,
  provider_name: "OpenAI",
  latency: 1250,
  generation_time: 1200,
  finish_reason: "stop",
  native_finish_reason: "stop",
  tokens_prompt: 90,
  tokens_completion: 9,
  native_tokens_prompt: 100,
  native_tokens_completion: 10,
  native_tokens_reasoning: 5,
  native_tokens_cached: 0,
  origin: "",
  usage: 0.000_125,
  is_byok: false,
  external_user: null,
  api_type: "completions",
  ...changes
})

const error = (code: number, message: string) => ({ error: { code, message } })

export const acquire: Effect.Effect<OpenRouterGenerations, never, Scope.Scope> = Effect.gen(function* () {
  const generations: Array<Generation> = []
  const requests: Array<string> = []
  const url = yield* LocalServer.serve((request, response) => {
    const target = request.url ?? ""
    requests.push(target)
    const { pathname, searchParams } = new URL(target, "http://localhost")
    if (request.headers.authorization !== `Bearer ${apiKey}`)
      return LocalServer.respond(response, 401, error(401, "No auth credentials found"))
    const id = searchParams.get("id")
    const found = generations.find((one) => one["id"] === id)
    return request.method === "GET" && pathname === "/api/v1/generation" && found !== undefined
      ? LocalServer.respond(response, 200, { data: found })
      : LocalServer.respond(response, 404, error(404, `Generation ${id} not found`))
  })
  return { url: `${url}/api/v1`, generations, requests }
})
