/**
 * A run's model calls as child spans, with OpenTelemetry's conventions for generative AI.
 *
 * They are made from the proxy's report after the run, so that every proxy has them, however the run ended. They
 * contain no prompt, no answer, and nothing that the agent chose.
 */
import { Context, Effect, Exit, Option, type Tracer } from "effect"
import { hasReachedUpstream, type LlmCall, type LlmTraffic } from "../RunFigures.ts"
import { attribute, operation } from "../Telemetry.ts"

/** Paths that a proxy passes on. The agent chose everything else in a path. */
const routes = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]

/** Operation of each route. The semantic conventions use `chat` for every conversation. */
const operationOf = (path: string): string =>
  path.startsWith("/v1/messages/count_tokens") ? operation.countTokens : operation.chat

/**
 * Provider of each route, by the format of its API: behind a gateway such as LiteLLM, any provider may answer. Names as
 * in the semantic conventions.
 */
const providerOf = (path: string): string => (path.startsWith("/v1/messages") ? "anthropic" : "openai")

/** Host and port of the upstream, if it is a URL. */
const serverOf = (upstream: string): { readonly address?: string; readonly port?: number } => {
  const url = URL.parse(upstream)
  if (url === null || url.hostname === "") return {}
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port)
  return { address: url.hostname.replace(/^\[|\]$/gu, ""), port }
}

const attributesOf = (
  call: LlmCall,
  requestModel: string,
  upstream: string
): Readonly<Record<string, string | number>> => {
  const server = serverOf(upstream)
  const { callId, method, model, outcome, path, status, usage } = call
  const given = {
    [attribute.operation]: operationOf(path),
    [attribute.provider]: providerOf(path),
    [attribute.serverAddress]: server.address,
    [attribute.serverPort]: server.port,
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

/** The HTTP status, or how the call was cut off; `undefined` if it succeeded. */
const errorOf = ({ completed, outcome, status }: LlmCall): string | undefined =>
  status >= 400 ? String(status) : completed ? undefined : (outcome ?? "incomplete")

/** Precise to a microsecond, because a number cannot represent a date in nanoseconds. */
const nanos = (millis: number): bigint => BigInt(Math.round(millis * 1000)) * 1000n

/** Makes spans that have already ended: the times of a call are known. Returns those that it made. */
export const make = (
  parent: Tracer.AnySpan,
  requestModel: string,
  traffic: LlmTraffic
): Effect.Effect<ReadonlyMap<LlmCall, Tracer.Span>> =>
  Effect.map(Effect.tracer, (tracer) => {
    const made = new Map<LlmCall, Tracer.Span>()
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
      for (const [name, value] of Object.entries(attributesOf(call, requestModel, traffic.upstream)))
        span.attribute(name, value)
      const error = errorOf(call)
      span.end(
        nanos(startedMs + call.durationMs),
        error === undefined ? Exit.void : Exit.fail(`the call ended with ${error}`)
      )
      made.set(call, span)
    }
    return made
  })
