/**
 * Spans of requests: their names, and what they leave out.
 *
 * A span is named after its route template, never after a path that a caller chose. It has no header and no value of a
 * query, because callers and proxies put credentials there. Probes and scrapes have no span: they would outnumber runs.
 */
import { Layer } from "effect"
import { HttpMiddleware, type HttpServerRequest, UrlParams } from "effect/http"
import * as ServerMetrics from "./ServerMetrics.ts"

const untraced = new Set(["/health", "/metrics"])

const nameOf = ({ method, url }: Pick<HttpServerRequest.HttpServerRequest, "method" | "url">): string =>
  `${ServerMetrics.methodOf(method)} ${ServerMetrics.routeOf(url)}`

/** Applies to the server to which it is provided. */
export const layer: Layer.Layer<never> = Layer.mergeAll(
  Layer.succeed(HttpMiddleware.SpanNameGenerator, nameOf),
  Layer.succeed(HttpMiddleware.TracerDisabledWhen, ({ url }) => untraced.has(ServerMetrics.routeOf(url))),
  Layer.succeed(HttpMiddleware.TracerHeaderFilter, () => false),
  Layer.succeed(UrlParams.CurrentRedactedNames, [/^/u])
)
