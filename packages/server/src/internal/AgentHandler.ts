/** Handler of the agent catalog, with an ETag. Works without an engine. */
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { hash } from "node:crypto"

/** The catalog rarely changes except with the server's version. */
const cacheControl = "private, max-age=60"

const tagOf = (json: string): string => `"${hash("sha256", json).slice(0, 32)}"`

export const make = Effect.gen(function* () {
  const catalog = yield* AgentCatalog
  /** The last catalog, which seldom differs from the next one. */
  let last = { json: "", etag: "" }
  return Effect.gen(function* () {
    const { headers: asked } = yield* HttpServerRequest.HttpServerRequest
    const json = JSON.stringify({ agents: yield* catalog.list })
    if (last.json !== json) last = { json, etag: tagOf(json) }
    const { etag } = last
    const headers = { etag, "cache-control": cacheControl, vary: "authorization, cookie" }
    const known = new Set(
      (asked["if-none-match"] ?? "").split(",").map((tag) => tag.trim().replace(/^W\//u, ""))
    )
    return known.has(etag) || known.has("*")
      ? HttpServerResponse.empty({ status: 304, headers })
      : HttpServerResponse.text(json, { contentType: "application/json", headers })
  })
})
