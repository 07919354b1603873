/**
 * One request to the API of a forge: how long, how often, how much of an answer is read, and what a refusal means.
 *
 * The credential is shown to the one address that is asked, since redirects are not followed. An answer is believed
 * where it has the form it must have, and repeated only without what was secret in the request.
 */
import { Clock, Duration, Effect, Schedule, Schema, Stream } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import type { Headers } from "effect/http/Headers"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as CredentialUse from "../git/CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import type { NewPullRequest, OpenPullRequest, PullRequestTarget } from "../../forge/PullRequests.ts"
import * as Redaction from "../git/Redaction.ts"

/** For one request and its answer. */
const requestSecondsMax = 20

/** For one operation, with its credential and everything that is tried again. */
const operationSecondsMax = 60

/** How often a request is sent again that may succeed later. */
const retriesMax = 2

/** The longest wait that a forge may ask for; longer ones are left to the caller. */
const waitSecondsMax = 20

/** A page of pull requests has a few ten thousand bytes. */
const answerBytesMax = 8 * 1024 * 1024

/** A page that people can be sent to. */
export const PageUrl = Schema.String.check(
  Schema.isPattern(/^https?:\/\/[^\s\u0000-\u001f\u007f"<>`\\]{1,2000}$/u, { expected: "an http address" })
)

/** Why a request failed, fit to be shown. */
export interface Refusal {
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
  /** Of the answer, where there was one. */
  readonly status?: number | undefined
  /** How long the forge wants to be left alone. */
  readonly waitSeconds?: number | undefined
}

type Branches = Pick<PullRequestTarget, "baseBranch" | "branch">

/** One repository at a kind of forge, asked with one credential. */
export interface ForgeClient {
  readonly find: (branches: Branches) => Effect.Effect<OpenPullRequest | undefined, Refusal>
  readonly create: (branches: Branches, text: NewPullRequest) => Effect.Effect<OpenPullRequest, Refusal>
}

/** Sends a request, again where that may help, and returns its answer as the schema has it. */
export const ask = <S extends Schema.ConstraintDecoder<unknown>>(
  credential: GitCredential | undefined,
  request: HttpClientRequest.HttpClientRequest,
  answer: S
): Effect.Effect<S["Type"], Refusal> => {
  const redact = Redaction.make(credential === undefined ? [] : [credential])
  const shown =
    credential === undefined
      ? request
      : HttpClientRequest.bearerToken(request, CredentialUse.apiToken(credential))
  return send(shown).pipe(
    Effect.flatMap((text) =>
      Effect.mapError(Schema.decodeUnknownEffect(Schema.fromJsonString(answer))(text), () =>
        refused("the forge's answer is not what its API says", checkApi)
      )
    ),
    Effect.mapError((refusal) => ({ ...refusal, detail: redact(refusal.detail) })),
    Effect.retry({
      times: retriesMax,
      while: ({ isRetryable, waitSeconds = 0 }) => isRetryable && waitSeconds <= waitSecondsMax,
      schedule: backoff
    })
  )
}

/** Ends an operation in time. */
export const inTime = <A>(
  operation: Effect.Effect<A, Refusal>,
  seconds: number = operationSecondsMax
): Effect.Effect<A, Refusal> =>
  Effect.timeoutOrElse(operation, {
    duration: Duration.seconds(seconds),
    orElse: () =>
      Effect.fail({
        detail: `the forge did not answer within ${seconds} s`,
        remedy: again,
        isRetryable: true
      })
  })

/** A refusal that asking again does not change. */
export const refused = (detail: string, remedy: string): Refusal => ({ detail, remedy, isRetryable: false })

/** Fails with one. */
export const refuse = (detail: string, remedy: string) => Effect.fail(refused(detail, remedy))

/** 1 s, 4 s, or what the forge has asked for where that is longer. */
const backoff = Schedule.exponential("1 second", 4).pipe(
  Schedule.setInputType<Refusal>(),
  Schedule.modifyDelay(({ duration, input }) =>
    Effect.succeed(Duration.max(duration, Duration.seconds(input.waitSeconds ?? 0)))
  )
)

const client = Effect.map(HttpClient.HttpClient, (plain) =>
  // GitHub answers no request without a name.
  HttpClient.mapRequest(
    HttpClient.withScope(plain),
    HttpClientRequest.setHeader("user-agent", "cogni-sandbox")
  )
)

const send = (request: HttpClientRequest.HttpClientRequest): Effect.Effect<string, Refusal> =>
  Effect.gen(function* () {
    const { headers, status, stream } = yield* Effect.mapError((yield* client).execute(request), unreachable)
    if (status >= 300 && status < 400) {
      return yield* refuse(
        `it redirects to ${headers["location"] ?? "no address"}, which is not followed`,
        "Use the repository's present address, or the address of its API"
      )
    }
    const text = yield* stream.pipe(
      Stream.mapError(unreachable),
      Stream.limitBytes(answerBytesMax, () => Stream.fail(tooLong)),
      Stream.decodeText,
      Stream.mkString
    )
    return status < 300 ? text : yield* Effect.flatMap(answered(status, headers, text), Effect.fail)
  }).pipe(
    Effect.scoped,
    Effect.provide(FetchHttpClient.layer),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
    // Neither an id of ours to the forge, nor a repository's name into a span.
    Effect.provideService(HttpClient.TracerDisabledWhen, () => true),
    (sent) => inTime(sent, requestSecondsMax)
  )

const again = "Try again (relay retry)"

const checkApi = "Check the address of its API (GITHUB_API_URL, GITLAB_HOST)"

const tooLong = refused(`its answer is longer than ${answerBytesMax} bytes`, checkApi)

const lookAtIt = "Look at what it says; the branch is pushed, and the pull request can be opened by hand"

const remedies: Readonly<Record<number, string>> = {
  401: "Give a token that is valid, for this server",
  403: "Give the token the right to open pull requests",
  404: "Check the repository's address, and that the token may see it",
  410: "Check the repository's address, and that the token may see it",
  409: lookAtIt,
  422: lookAtIt
}

const answered = Effect.fnUntraced(function* (
  status: number,
  headers: Headers,
  text: string
): Effect.fn.Return<Refusal> {
  const said = messageOf(text)
  const refusal = { status, detail: `the forge answers ${status}: ${said}` }
  const retryAfter = numberOf(headers["retry-after"])
  const isLimit =
    status === 429 ||
    // At GitHub a limit is a 403, as is a right that is missing.
    (status === 403 &&
      (retryAfter !== undefined || headers["x-ratelimit-remaining"] === "0" || /\brate limit\b/iu.test(said)))
  if (isLimit) {
    const reset = numberOf(headers["x-ratelimit-reset"])
    const now = (yield* Clock.currentTimeMillis) / 1000
    // Without a word of when it ends, a limit lasts a minute.
    const waitSeconds = retryAfter ?? (reset === undefined ? 60 : Math.max(0, reset - now))
    return { ...refusal, waitSeconds, remedy: `Wait, then ${again.toLowerCase()}`, isRetryable: true }
  }
  return status >= 500
    ? { ...refusal, waitSeconds: retryAfter, remedy: again, isRetryable: true }
    : { ...refusal, remedy: remedies[status] ?? checkApi, isRetryable: false }
})

const numberOf = (header: string | undefined): number | undefined =>
  header !== undefined && /^\d{1,12}$/u.test(header) ? Number(header) : undefined

/** The message of a forge: a text, a list of them, or lists by field; GitHub has its reasons beside it. */
const messageOf = (text: string): string => {
  try {
    const { error, errors, message } = Object(JSON.parse(text)) as Readonly<Record<string, unknown>>
    const said = [error ?? message, errors]
      .filter((one) => one !== undefined)
      .map((one) => (typeof one === "string" ? one : JSON.stringify(one)))
    return said.length === 0 ? text : said.join(": ")
  } catch {
    return text
  }
}

/** Codes of OpenSSL and of Node for a server that is not the one it should be. */
const tlsCodes = /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL|EPROTO/u

const networkCodes = /^(?:E[A-Z]+|EAI_[A-Z]+|UND_ERR_[A-Z_]+)$/u

const unreachable = (error: Error): Refusal => {
  const causes = causesOf(error)
  const said = causes.map(({ message }) => message).findLast((message) => message !== "") ?? error.name
  const codes = causes.map((cause) => ("code" in cause ? String(cause.code) : ""))
  if (codes.some((code) => tlsCodes.test(code))) {
    return refused(
      `the forge cannot be trusted (TLS): ${said}`,
      "Give the certificate of its authority (NODE_EXTRA_CA_CERTS)"
    )
  }
  return codes.some((code) => networkCodes.test(code))
    ? {
        detail: `the forge cannot be reached: ${said}`,
        remedy: `Check its address and the network, then ${again.toLowerCase()}`,
        isRetryable: true
      }
    : refused(`the forge cannot be asked: ${said}`, checkApi)
}

/** Itself and what it came of, outermost first. */
const causesOf = (error: Error): ReadonlyArray<Error> =>
  error.cause instanceof Error ? [error, ...causesOf(error.cause)] : [error]
