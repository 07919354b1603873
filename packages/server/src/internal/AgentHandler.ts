/** Handler of the agent catalog, with an ETag. Works without an engine. */
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { Effect } from "effect"
import * as Hex from "effect/encoding/Hex"
import { HttpServerRequest, HttpServerResponse } from "effect/http"

/** The catalog rarely changes except with the server's version. */
const cacheControl = "private, max-age=60"

const tagOf = (json: string) =>
  Effect.map(
    Effect.promise(() => crypto.subtle.digest("SHA-256", new TextEncoder().encode(json))),
    (digest) => `"${Hex.encode(new Uint8Array(digest, 0, 16))}"`
  )

export const make = Effect.gen(function* () {
  const catalog = yield* AgentCatalog
  return Effect.gen(function* () {
    const { headers: asked } = yield* HttpServerRequest.HttpServerRequest
    const json = JSON.stringify({ agents: yield* catalog.list })
    const etag = yield* tagOf(json)
    const headers = { etag, "cache-control": cacheControl, vary: "authorization, cookie" }
    const known = new Set(
      (asked["if-none-match"] ?? "").split(",").map((tag) => tag.trim().replace(/^W\//u, ""))
    )
    return known.has(etag) || known.has("*")
      ? HttpServerResponse.empty({ status: 304, headers })
      : HttpServerResponse.text(json, { contentType: "application/json", headers })
  })
})
