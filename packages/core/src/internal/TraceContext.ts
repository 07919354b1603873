/** The trace of a run, in the form in which other services continue it: W3C Trace Context, version 00. */
import { Effect, Option, Tracer } from "effect"

/**
 * Returns the header `traceparent` of the current span. It is `undefined` without a span, and if nothing collects spans:
 * another service would then record children of a span that is nowhere.
 */
export const traceparent: Effect.Effect<string | undefined> = Effect.gen(function* () {
  if ((yield* Effect.tracer) === Tracer.nativeTracer) return undefined
  const span = yield* Effect.option(Effect.currentSpan)
  return Option.isNone(span) ? undefined : format(span.value)
})

/** Returns `undefined` if a tracer has IDs of another form. */
const format = ({ sampled, spanId, traceId }: Pick<Tracer.Span, "sampled" | "spanId" | "traceId">) =>
  /^[0-9a-f]{32}$/u.test(traceId) && /^[0-9a-f]{16}$/u.test(spanId)
    ? `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`
    : undefined
