/** A tracer that keeps its spans, as one that exports them does, and not Effect's own, which keeps none. */
import { Tracer } from "effect"

export const make = () => {
  const spans: Array<Tracer.NativeSpan> = []
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      spans.push(span)
      return span
    }
  })
  return { spans, tracer }
}
