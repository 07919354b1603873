/** The header of Temporal that carries a trace: `traceparent` of W3C, in the default encoding. Used in workflows, too. */
import { defaultPayloadConverter, type Headers } from "@temporalio/common"

const name = "traceparent"

const form = /^00-(?<traceId>[0-9a-f]{32})-(?<spanId>[0-9a-f]{16})-[0-9a-f]{2}$/u

/** A span of another process. */
export interface Parent {
  readonly traceId: string
  readonly spanId: string
}

/** Returns the span that headers name. */
export const parentIn = (headers: Headers): Parent | undefined => {
  const payload = headers[name]
  if (payload === undefined) return undefined
  const text: unknown = defaultPayloadConverter.fromPayload(payload)
  const { spanId, traceId } = (typeof text === "string" ? form.exec(text)?.groups : undefined) ?? {}
  return spanId === undefined || traceId === undefined ? undefined : { traceId, spanId }
}

/** Adds a span to headers. */
export const withParent = (headers: Headers, parent: Parent | undefined): Headers =>
  parent === undefined
    ? headers
    : { ...headers, [name]: defaultPayloadConverter.toPayload(`00-${parent.traceId}-${parent.spanId}-01`) }
