/** The catalog, with a tag that says whether it has changed. Needs nothing that runs agents. */
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"

/** It changes with the server's version, and hardly else. */
const cacheControl = "private, max-age=60"

export const make = Effect.gen(function* () {
  const catalog = yield* AgentCatalog
  let last = { json: "", etag: "" }

  const tagOf = (json: string) =>
    json === last.json
      ? Effect.succeed(last.etag)
      : Effect.map(
          Effect.promise(() => crypto.subtle.digest("SHA-256", new TextEncoder().encode(json))),
          (digest) => {
            const hash = Array.from(new Uint8Array(digest, 0, 16), (byte) =>
              byte.toString(16).padStart(2, "0")
            )
            last = { json, etag: `"${hash.join("")}"` }
            return last.etag
          }
        )

  return Effect.fnUntraced(function* () {
    const { headers: asked } = yield* HttpServerRequest.HttpServerRequest
    const json = JSON.stringify({ agents: yield* catalog.list })
    const etag = yield* tagOf(json)
    const headers = { etag, "cache-control": cacheControl, vary: "authorization" }
    const known = new Set(
      (asked["if-none-match"] ?? "").split(",").map((tag) => tag.trim().replace(/^W\//u, ""))
    )
    return known.has(etag) || known.has("*")
      ? HttpServerResponse.empty({ status: 304, headers })
      : HttpServerResponse.text(json, { contentType: "application/json", headers })
  })
})
