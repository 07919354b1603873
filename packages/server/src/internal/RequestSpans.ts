/**
 * Spans of requests: their names, and what they leave out.
 *
 * A span is named after its route template, never after a path that a caller chose. It has no header and no value of a
 * query, because callers and proxies put credentials there. Probes and scrapes have no span: they would outnumber runs.
 *
 * A caller can name the trace in `traceparent`, and in no other header. It cannot say that its runs are not traced: the
 * IDs in records, logs and exemplars would lead to nothing.
 */
import { Context, Effect, Fiber, Layer, Option, Tracer } from "effect"
import { HttpMiddleware, HttpServerRequest, HttpTraceContext, UrlParams } from "effect/http"
import * as ServerMetrics from "./ServerMetrics.ts"

const untraced = new Set(["/health", "/metrics"])

const nameOf = ({ method, url }: Pick<HttpServerRequest.HttpServerRequest, "method" | "url">): string =>
  `${ServerMetrics.methodOf(method)} ${ServerMetrics.routeOf(url)}`

/** The span that a request names as its parent. */
const namedIn = (
  headers: HttpServerRequest.HttpServerRequest["headers"]
): Option.Option<Tracer.ExternalSpan> =>
  Option.map(HttpTraceContext.w3c(headers), ({ spanId, traceId }) =>
    Tracer.externalSpan({ spanId, traceId, sampled: true })
  )

const currentRequest = () =>
  Option.flatMap(Option.fromUndefinedOr(Fiber.getCurrent()), ({ context }) =>
    Context.getOption(context, HttpServerRequest.HttpServerRequest)
  )

/** Makes the spans of requests parts of the traces that they name, whatever else they ask for. */
const ofRequests = (tracer: Tracer.Tracer): Tracer.Tracer =>
  tracer === Tracer.nativeTracer
    ? tracer
    : Tracer.make({
        ...(tracer.context === undefined ? {} : { context: tracer.context.bind(tracer) }),
        span: (options) => {
          const request = options.kind === "server" ? Option.getOrUndefined(currentRequest()) : undefined
          return request === undefined
            ? tracer.span(options)
            : tracer.span({ ...options, parent: namedIn(request.headers), sampled: true })
        }
      })

/** Applies to the server to which it is provided. */
export const layer: Layer.Layer<never> = Layer.mergeAll(
  Layer.succeed(HttpMiddleware.SpanNameGenerator, nameOf),
  Layer.succeed(HttpMiddleware.TracerDisabledWhen, ({ url }) => untraced.has(ServerMetrics.routeOf(url))),
  Layer.succeed(HttpMiddleware.TracerHeaderFilter, () => false),
  Layer.succeed(UrlParams.CurrentRedactedNames, [/^/u]),
  Layer.effect(Tracer.Tracer, Effect.map(Effect.service(Tracer.Tracer), ofRequests))
)
