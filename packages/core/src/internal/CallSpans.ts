/**
 * A run's model calls as spans below it, in OpenTelemetry's words for generative AI.
 *
 * Made from what the proxy tells once the run is over, so that every proxy has them, and on every path. What was said
 * is in none of them, and nothing that the agent has chosen.
 */
import { Context, Effect, Exit, Option, type Tracer } from "effect"
import { hasReachedUpstream, type LlmCall, type LlmTraffic } from "../RunResult.ts"
import { attribute } from "../Telemetry.ts"

/** The paths a proxy passes on. Whatever else a path says, its agent has chosen. */
const routes = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]

/** What each route asks of a model; the semantic conventions know `chat` for all that converse. */
const operationOf = (path: string): string =>
  path.startsWith("/v1/messages/count_tokens") ? "count_tokens" : "chat"

const attributesOf = (call: LlmCall, requestModel: string): Readonly<Record<string, string | number>> => {
  const { callId, method, model, outcome, path, status, usage } = call
  const given = {
    [attribute.operation]: operationOf(path),
    [attribute.model]: requestModel,
    [attribute.responseModel]: model,
    [attribute.inputTokens]: usage?.inputTokens,
    [attribute.outputTokens]: usage?.outputTokens,
    [attribute.costUsd]: usage?.costUsd,
    [attribute.callId]: callId,
    [attribute.callOutcome]: outcome,
    [attribute.httpMethod]: method,
    [attribute.httpStatus]: status,
    [attribute.urlPath]: routes.find((route) => path === route || path.startsWith(`${route}?`)),
    [attribute.errorType]: errorOf(call)
  }
  return Object.fromEntries(
    Object.entries(given).filter((entry): entry is [string, string | number] => entry[1] !== undefined)
  )
}

/** A status, or how it broke off; `undefined` where all went well. */
const errorOf = ({ completed, outcome, status }: LlmCall): string | undefined =>
  status >= 400 ? String(status) : completed ? undefined : (outcome ?? "incomplete")

/** To a microsecond: in nanoseconds, a date is more than a number holds. */
const nanos = (millis: number): bigint => BigInt(Math.round(millis * 1000)) * 1000n

/** Ended as soon as they are made: a call's times are known. */
export const make = (
  parent: Tracer.AnySpan,
  requestModel: string,
  traffic: LlmTraffic
): Effect.Effect<void> =>
  Effect.map(Effect.tracer, (tracer) => {
    for (const call of traffic.calls.filter(hasReachedUpstream)) {
      const startedMs = Date.parse(call.at)
      if (!Number.isFinite(startedMs)) continue
      const span = tracer.span({
        name: `${operationOf(call.path)} ${requestModel}`,
        parent: Option.some(parent),
        annotations: Context.empty(),
        links: [],
        startTime: nanos(startedMs),
        kind: "client",
        root: false,
        sampled: parent.sampled
      })
      for (const [name, value] of Object.entries(attributesOf(call, requestModel)))
        span.attribute(name, value)
      const error = errorOf(call)
      span.end(
        nanos(startedMs + call.durationMs),
        error === undefined ? Exit.void : Exit.fail(`the call ended with ${error}`)
      )
    }
  })
