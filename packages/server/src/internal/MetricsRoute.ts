/** The route `/metrics`: as OpenMetrics for scrapers that prefer it, otherwise in Prometheus's text format. */
import { Effect, type Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import Negotiator from "negotiator"
import * as MetricsText from "./MetricsText.ts"

/** The first one is for callers that accept both, such as browsers. */
const formats = [MetricsText.plain, MetricsText.openMetrics] as const

/** Prometheus 3 says how it wants names with special characters. We have none, so that we meet every wish. */
const escaping = /;\s*escaping=[\w-]+/giu

/** Returns the format that an `Accept` header prefers. A caller that accepts neither gets plain text. */
export const formatFor = (accept: string | undefined): MetricsText.Format => {
  const headers = accept === undefined ? {} : { accept: accept.replaceAll(escaping, "") }
  const preferred = new Negotiator({ headers }).mediaType([...formats])
  return formats.find((format) => format === preferred) ?? MetricsText.plain
}

export const layer: Layer.Layer<never, never, HttpRouter.HttpRouter> = HttpRouter.add(
  "GET",
  "/metrics",
  Effect.gen(function* () {
    const { headers } = yield* HttpServerRequest.HttpServerRequest
    const format = formatFor(headers["accept"])
    const text = yield* MetricsText.make(format)
    return HttpServerResponse.text(text, { contentType: format, headers: { vary: "accept" } })
  })
)
