/**
 * Tools that send HTTP requests from the host, by an allowlist of the operator.
 *
 * The host adds the credential of a connection. The sandbox never sees it: it is removed from answers that repeat it,
 * and an answer that repeats it in an encoding is refused. Requests go directly to public addresses, and redirects are
 * not followed.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as ToolUse from "@cogni/sandbox-connections/ToolUse"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Duration, Effect, Option, type Redacted, Result, Schema } from "effect"
import * as GuardedRequest from "../internal/tools/GuardedRequest.ts"
import * as HttpRule from "../internal/tools/HttpRule.ts"
import * as KeyInjection from "../KeyInjection.ts"

/** Allowed requests, as an array of rules. */
export const HttpRules = HttpRule.HttpRules

export type HttpRules = typeof HttpRules.Type

/** Longest answer, in bytes. */
const answerBytesMax = 128 * 1024

/** Longest body of a request, in characters. */
const bodyCharactersMax = 128 * 1024

/** Time limit of one request and its answer, in seconds. */
const requestSecondsMax = 30

/** Limits of a call: its credential may take as long as its request. */
const limits = { runtimeSecondsMax: 70, resultBytesMax: 512 * 1024 }

const Url = Schema.String.check(Schema.isMaxLength(4000)).annotate({ description: "An absolute URL" })

const MediaType = Schema.String.check(
  Schema.isMaxLength(200),
  Schema.isPattern(/^[\w!#$&^.+*/;=, -]+$/u, { expected: "a media type, such as application/json" })
)

const Accept = Schema.optionalKey(MediaType.annotate({ description: "Default: */*" }))

const Answer = Schema.Struct({
  status: Schema.Int,
  contentType: Schema.String,
  /** Address of a redirect, which is not followed. */
  location: Schema.NullOr(Schema.String),
  body: Schema.String
})

type Answer = typeof Answer.Type

/** Returns the tools that have rules: `http__get`, and `http__send` for the methods that change something. */
export const make = (rules: HttpRules): Effect.Effect<ReadonlyArray<Tool.Tool>, never, ConnectionBroker> =>
  Effect.map(ConnectionBroker, (broker) => {
    const has = (isReading: boolean) =>
      rules.some(({ methods }) => methods.some((method) => reading.has(method) === isReading))
    const request = requestOf(broker, rules)
    return [...(has(true) ? [get(rules, request)] : []), ...(has(false) ? [send(rules, request)] : [])]
  })

const reading: ReadonlySet<HttpRule.Method> = new Set(["GET", "HEAD"])

interface Asked {
  readonly toolId: string
  readonly method: HttpRule.Method
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | undefined
}

type Request = (asked: Asked) => Effect.Effect<Answer, Tool.ToolFailed>

const get = (rules: HttpRules, request: Request): Tool.Tool =>
  Tool.make({
    ...limits,
    name: "http__get",
    description: `Read a URL through the host. Allowed: ${HttpRule.describe(rules)}`,
    effect: "read_only",
    input: Schema.Struct({
      url: Url,
      method: Schema.optionalKey(Schema.Literals(["GET", "HEAD"]).annotate({ description: "Default: GET" })),
      accept: Accept
    }),
    output: Answer,
    execute: ({ accept = "*/*", method = "GET", url }) =>
      request({ toolId: "http__get", method, url, headers: { accept } })
  })

const Sent = Schema.Struct({
  url: Url,
  method: Schema.Literals(["POST", "PUT", "PATCH", "DELETE"]),
  accept: Accept,
  contentType: Schema.optionalKey(MediaType.annotate({ description: "Default: application/json" })),
  body: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(bodyCharactersMax)))
})

const decodeSent = Schema.decodeUnknownOption(Sent)

const send = (rules: HttpRules, request: Request): Tool.Tool => {
  const tool = Tool.make({
    ...limits,
    name: "http__send",
    description: `Send a request that may change something through the host. Allowed: ${HttpRule.describe(rules)}`,
    effect: "external_side_effect",
    input: Sent,
    output: Answer,
    execute: ({ accept = "*/*", body, contentType = "application/json", method, url }) =>
      request({
        toolId: "http__send",
        method,
        url,
        body,
        headers: {
          accept,
          "content-length": String(Buffer.byteLength(body ?? "")),
          ...(body === undefined ? {} : { "content-type": contentType })
        }
      })
  })
  // No approval is asked for a request that no rule allows.
  return { ...tool, check: (input) => tool.check(input) ?? problemOf(rules, input) }
}

const problemOf = (rules: HttpRules, input: unknown): string | undefined =>
  Option.match(decodeSent(input), {
    onNone: () => undefined,
    onSome: ({ method, url }) => Result.getOrUndefined(Result.flip(HttpRule.find(rules, method, url)))
  })

const requestOf =
  (broker: ConnectionBroker["Service"], rules: HttpRules): Request =>
  (asked) =>
    Effect.gen(function* () {
      const { rule, url } = yield* Effect.mapError(
        Effect.fromResult(HttpRule.find(rules, asked.method, asked.url)),
        denied
      )
      const { connection } = rule
      if (connection === undefined) return yield* answer(asked, rule, url)
      const purpose = reading.has(asked.method) ? "tool_read" : "tool_write"
      return yield* ToolUse.call(
        broker,
        {
          toolId: asked.toolId,
          purpose,
          connection,
          server: rule.origin,
          target: targetOf(asked.method, url)
        },
        // Compared again: the broker may be another implementation.
        ({ permit, secret }) =>
          permit.server === rule.origin
            ? answer(asked, rule, url, secret)
            : Effect.fail(denied("the credential of this rule is for another server"))
      )
    }).pipe(Effect.mapError((problem) => new Tool.ToolFailed(problem)))

/** Describes a request without its query, which can contain what a user wrote. */
const targetOf = (method: string, { origin, pathname }: URL): string =>
  `${method} ${origin}${pathname}`.slice(0, 2000)

const denied = (detail: string): ToolUse.ToolProblem => ({ code: "policy_denied", detail })

const answer = Effect.fnUntraced(function* (
  { body, headers, method }: Asked,
  { allowPrivateAddresses = false, header = "authorization" }: HttpRule.HttpRule,
  url: URL,
  secret?: Redacted.Redacted<string>
): Effect.fn.Return<Answer, ToolUse.ToolProblem> {
  const found = yield* GuardedRequest.send({
    url,
    method,
    body,
    allowPrivateAddresses,
    answerBytesMax,
    headers: { ...headers, ...(secret === undefined ? {} : KeyInjection.header(header, secret)) }
  }).pipe(
    Effect.mapError((problem) => problems[problem]),
    Effect.timeoutOrElse({
      duration: Duration.seconds(requestSecondsMax),
      orElse: () => Effect.fail(slow)
    }),
    Effect.mapError((problem) => (reading.has(method) ? problem : ToolUse.afterSending(problem)))
  )
  const text = Result.try(() => new TextDecoder("utf-8", { fatal: true }).decode(found.body))
  if (Result.isFailure(text)) return yield* Effect.fail(notText)
  if (secret === undefined) return answerOf(found, text.success)
  const clean = (part: string) => KeyInjection.scrub(part, secret)
  const { contentType, location } = found
  const cleaned = answerOf(
    { ...found, contentType: clean(contentType), location: location && clean(location) },
    clean(text.success)
  )
  const parts = [cleaned.contentType, cleaned.location ?? "", cleaned.body]
  return parts.some((part) => KeyInjection.repeats(part, secret)) ? yield* Effect.fail(repeating) : cleaned
})

const answerOf = (
  { contentType, location, status }: Omit<GuardedRequest.GuardedAnswer, "body">,
  body: string
): Answer => ({ status, contentType, location: location ?? null, body })

const repeating: ToolUse.ToolProblem = {
  code: "redaction_failed",
  detail:
    "the answer repeats the credential of the host in an encoding, so it is not shown. Ask for something else"
}

const problems: Readonly<Record<GuardedRequest.GuardedProblem, ToolUse.ToolProblem>> = {
  encoded: { code: "execution", detail: "the server answered with an encoding that was not asked for" },
  private_address: denied("the server has an address that is private or belongs to this host"),
  too_long: {
    code: "execution",
    detail: `the answer is longer than ${answerBytesMax} bytes. Ask for less`
  },
  unreachable: { code: "unavailable", detail: "the server cannot be reached, or broke off its answer" }
}

const slow: ToolUse.ToolProblem = {
  code: "unavailable",
  detail: `the server did not answer within ${requestSecondsMax} s`
}

const notText: ToolUse.ToolProblem = { code: "execution", detail: "the answer is not text in UTF-8" }
