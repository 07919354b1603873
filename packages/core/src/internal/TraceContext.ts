/** The trace of a run, in the form in which other services continue it: W3C Trace Context, version 00. */
import { Context, Effect, Option, Tracer } from "effect"

/**
 * Returns the current span of a context. It is `undefined` without a span, and if nothing collects spans: the IDs would
 * lead to a span that is nowhere. It also is if a tracer has IDs of another form.
 */
export const collected = (context: Context.Context<never>): Tracer.Span | undefined => {
  if (Context.get(context, Tracer.Tracer) === Tracer.nativeTracer) return undefined
  const span = Option.getOrUndefined(Context.getOption(context, Tracer.ParentSpan))
  return span?._tag === "Span" && isWellFormed(span) ? span : undefined
}

const isWellFormed = ({ spanId, traceId }: Pick<Tracer.Span, "spanId" | "traceId">): boolean =>
  /^[0-9a-f]{32}$/u.test(traceId) && /^[0-9a-f]{16}$/u.test(spanId)

/**
 * Returns the header `traceparent` of the current span. It is `undefined` without a span, and if nothing collects spans:
 * another service would then record children of a span that is nowhere.
 */
export const traceparent: Effect.Effect<string | undefined> = Effect.map(
  Effect.context<never>(),
  (context) => {
    const span = collected(context)
    return span && `00-${span.traceId}-${span.spanId}-${span.sampled ? "01" : "00"}`
  }
)
