/** `core__metrics_query`: queries the host's Prometheus, only through its query API. */
import { Effect, Option, type Redacted, Schema } from "effect"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as KeyInjection from "../KeyInjection.ts"

export interface MetricsQueryOptions {
  /** Base URL of the server. Without one, every call fails with `unavailable`. */
  readonly url?: string | undefined
  readonly bearerToken?: Redacted.Redacted<string> | undefined
  readonly runtimeSecondsMax?: number | undefined
}

const Time = Schema.Union([Schema.String.check(Schema.isMaxLength(64)), Schema.Finite])

const Input = Schema.Struct({
  query: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(4096)).annotate({
    description: "PromQL"
  }),
  /** Time of an instant query (default: now). */
  time: Schema.optionalKey(Time),
  /** Start of a range query, which also needs `end` and `stepSeconds`. */
  start: Schema.optionalKey(Time),
  end: Schema.optionalKey(Time),
  stepSeconds: Schema.optionalKey(Schema.Finite.check(Schema.isBetween({ minimum: 1, maximum: 86_400 })))
})

/** Responses of Prometheus' HTTP API. */
const Answer = Schema.Union([
  Schema.Struct({
    status: Schema.Literal("success"),
    data: Schema.Struct({ resultType: Schema.String, result: Schema.Unknown })
  }),
  Schema.Struct({ status: Schema.Literal("error"), errorType: Schema.String, error: Schema.String })
])

const decodeAnswer = Schema.decodeUnknownOption(Schema.fromJsonString(Answer))

/** Prometheus itself refuses more points per series. */
const pointsMax = 11_000

const answerBytesMax = 4 * 1024 * 1024

export const make = (options: MetricsQueryOptions = {}): Tool.Tool =>
  Tool.make({
    name: "core__metrics_query",
    description:
      "Ask the host's Prometheus: an instant query, or a range query with start, end and stepSeconds.",
    effect: "read_only",
    input: Input,
    output: Schema.Struct({ resultType: Schema.String, result: Schema.Unknown }),
    runtimeSecondsMax: options.runtimeSecondsMax ?? 30,
    resultBytesMax: 256 * 1024,
    execute: (input) => ask(options, input)
  })

const failed = (code: Tool.ToolErrorCode, detail: string) => new Tool.ToolFailed({ code, detail })

const unavailable = (why: string) =>
  failed("unavailable", `the host's metrics cannot be queried: ${why}. Continue without, or try again later`)

const ask = Effect.fnUntraced(function* (options: MetricsQueryOptions, input: typeof Input.Type) {
  if (options.url === undefined) return yield* unavailable("no server is configured")
  const { end, query, start, stepSeconds, time } = input
  const isRange = start !== undefined || end !== undefined || stepSeconds !== undefined
  if (isRange && (start === undefined || end === undefined || stepSeconds === undefined))
    return yield* failed("validation", "a range query requires start, end and stepSeconds")
  const points = isRange ? (secondsOf(end!) - secondsOf(start!)) / stepSeconds! : 1
  if (!(points >= 0 && points <= pointsMax))
    return yield* failed(
      "validation",
      `a range query may have at most ${pointsMax} points, and its end may not be before its start`
    )
  const parameters = new URLSearchParams({
    query,
    ...(isRange
      ? { start: String(start), end: String(end), step: String(stepSeconds) }
      : time === undefined
        ? {}
        : { time: String(time) })
  })
  const text = yield* post(options, isRange ? "query_range" : "query", parameters)
  const answer = Option.getOrUndefined(decodeAnswer(text))
  if (answer === undefined) return yield* unavailable("the server is not Prometheus")
  if (answer.status === "error")
    return yield* answer.errorType === "bad_data"
      ? failed("validation", `query: ${answer.error.slice(0, 500)}`)
      : failed("execution", `${answer.errorType}: ${answer.error.slice(0, 500)}`)
  return answer.data
})

const secondsOf = (time: string | number): number =>
  typeof time === "number" ? time : /^[0-9.]+$/u.test(time) ? Number(time) : Date.parse(time) / 1000

const post = (options: MetricsQueryOptions, endpoint: string, parameters: URLSearchParams) =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(`${options.url!.replace(/\/+$/u, "")}/api/v1/${endpoint}`, {
        method: "POST",
        body: parameters,
        redirect: "error",
        signal,
        headers:
          options.bearerToken === undefined ? {} : { authorization: KeyInjection.bearer(options.bearerToken) }
      })
      return await bounded(response)
    },
    catch: () => unavailable("the server does not answer")
  })

const bounded = async (response: Response): Promise<string> => {
  const decoder = new TextDecoder()
  let text = ""
  for await (const piece of response.body ?? []) {
    text += decoder.decode(piece as Uint8Array, { stream: true })
    if (text.length > answerBytesMax) throw new TypeError("too much")
  }
  return text + decoder.decode()
}
