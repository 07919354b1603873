/**
 * Sends requests to LiteLLM's management API with the key of an administrator, bounded in time and size.
 *
 * Answers are decoded with a schema, and quoted without the key.
 */
import { Duration, Effect, Redacted, Schema } from "effect"
import * as KeyInjection from "../../KeyInjection.ts"
import * as ManagementRequest from "../ManagementRequest.ts"
import { RunKeyFailed } from "../../RunKeys.ts"
import type { KeyUnavailable } from "../../UpstreamKey.ts"

export interface LiteLlmAdminOptions {
  /** URL of LiteLLM without `/v1`. */
  readonly url: string
  readonly key: Effect.Effect<KeyInjection.UpstreamKey, KeyUnavailable>
  readonly connections: ManagementRequest.Connections
  /** How long one request may take, in seconds. */
  readonly requestSecondsMax: number
}

export interface Question<S extends Schema.ConstraintDecoder<unknown>> {
  readonly operation: RunKeyFailed["operation"]
  readonly method: "GET" | "POST"
  /** Path with its query. */
  readonly path: string
  readonly body?: unknown
  readonly answer: S
  /** Value for an answer with status 404 that LiteLLM wrote, if it is no failure. */
  readonly absent?: S["Type"] | undefined
}

/** Maximum size of an answer. A page of 100 keys has about 150 kB. */
const answerBytesMax = 4 * 1024 * 1024

/** Characters of LiteLLM's error text that are quoted. */
const quotedMax = 300

/** LiteLLM's formats of an error. */
const ErrorAnswer = Schema.fromJsonString(
  Schema.Union([
    Schema.Struct({
      error: Schema.Struct({ message: Schema.String, type: Schema.optionalKey(Schema.NullOr(Schema.String)) })
    }),
    Schema.Struct({ detail: Schema.Unknown })
  ])
)

const decodeError = Schema.decodeUnknownOption(ErrorAnswer)

const retry = "Check LiteLLM and its database, then try again"

/** Sends a request, and decodes the answer with its schema. */
export const ask = <S extends Schema.ConstraintDecoder<unknown>>(
  options: LiteLlmAdminOptions,
  question: Question<S>
): Effect.Effect<S["Type"], RunKeyFailed> =>
  Effect.flatMap(send(options, question), (text): Effect.Effect<S["Type"], RunKeyFailed> =>
    text === undefined
      ? Effect.succeed(question.absent!)
      : Effect.mapError(Schema.decodeUnknownEffect(Schema.fromJsonString(question.answer))(text), () =>
          failure(question.operation, ...strange)
        )
  )

interface Kind {
  readonly isRetryable?: boolean
  readonly isUncertain?: boolean
}

const failure = (operation: RunKeyFailed["operation"], detail: string, remedy: string, kind: Kind = {}) =>
  new RunKeyFailed({ operation, detail, remedy, isRetryable: false, isUncertain: false, ...kind })

const strange = [
  "the answer is not what LiteLLM's API says",
  "Check that the URL of the model API is LiteLLM's, and update LiteLLM",
  { isUncertain: true }
] as const

/** Returns the text of the answer; `undefined` if LiteLLM has nothing there, and that is no failure. */
const send = (
  { connections, key: source, requestSecondsMax, url }: LiteLlmAdminOptions,
  { absent, body, method, operation, path }: Omit<Question<typeof Schema.Unknown>, "answer">
): Effect.Effect<string | undefined, RunKeyFailed> => {
  const failed = (detail: string, remedy: string, kind?: Kind) => failure(operation, detail, remedy, kind)
  const uncertain = (detail: string) => failed(detail, retry, { isRetryable: true, isUncertain: true })
  return Effect.gen(function* () {
    const key = yield* Effect.mapError(source, ({ detail, isRetryable, remedy }) =>
      failed(`the administrator's key is not available: ${detail}`, remedy, { isRetryable })
    )
    const { status, text } = yield* Effect.tryPromise({
      try: (signal) =>
        ManagementRequest.send({
          connections,
          url: `${url}${path}`,
          key,
          signal,
          method,
          body,
          answerBytesMax
        }),
      catch: (thrown) =>
        isUnsent(thrown)
          ? failed("LiteLLM cannot be reached", retry, { isRetryable: true })
          : uncertain("the connection to LiteLLM broke off")
    })
    if (text === undefined) return yield* failed(...strange)
    if (status >= 200 && status < 300) return text
    const told = wordsOf(text, key)
    if (status === 404 && absent !== undefined && told !== undefined) return undefined
    return yield* refusalOf(status, told, failed)
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(requestSecondsMax),
      orElse: () => Effect.fail(uncertain(`LiteLLM did not answer within ${requestSecondsMax} s`))
    })
  )
}

/** Errors of a connection that was never made, so that no request was sent on it. */
const unsentCodes = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"])

/** Returns whether the error of a connection says that nothing was sent. */
const isUnsent = (thrown: unknown): boolean =>
  thrown instanceof Error && unsentCodes.has(String((thrown as NodeJS.ErrnoException).code))

const refusalOf = (
  status: number,
  told: string | undefined,
  failed: (detail: string, remedy: string, kind?: Kind) => RunKeyFailed
): RunKeyFailed => {
  const said = `LiteLLM answered ${status}${told === undefined ? "" : `: ${told}`}`
  const isLater = status === 429 || status >= 500
  if (/no_db_connection|no connected db|not connected to db|database not connected/iu.test(told ?? ""))
    return failed(said, "Give LiteLLM a database (DATABASE_URL), where it stores keys, and check it", {
      isRetryable: isLater,
      isUncertain: isLater
    })
  if (isLater) return failed(said, retry, { isRetryable: true, isUncertain: true })
  return status === 401 || status === 403
    ? failed(said, "Use LiteLLM's master key, or the key of an administrator that may create keys")
    : failed(said, "Correct what it names, or check that the URL of the model API is LiteLLM's")
}

/** Returns the text of an error that LiteLLM wrote, without the key. */
const wordsOf = (text: string, key: KeyInjection.UpstreamKey): string | undefined => {
  const found = decodeError(text)
  if (found._tag === "None") return undefined
  const words = "error" in found.value ? found.value.error.message : JSON.stringify(found.value.detail)
  return KeyInjection.scrub(words, key)
    .replace(/\p{Cc}+/gu, " ")
    .slice(0, quotedMax)
}

/** Redacts a key that LiteLLM issued. */
export const issued = (key: string): KeyInjection.UpstreamKey => Redacted.make(key)
