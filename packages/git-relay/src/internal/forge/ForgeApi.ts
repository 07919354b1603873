/**
 * Sends requests to the API of a forge, limits their time, retries and response size, and maps refusals to errors.
 *
 * Redirects are not followed, so only the requested address receives the credential. A response must have the expected
 * format, and is quoted only without the secrets of the request.
 */
import * as BoundedHttp from "@cogni/sandbox-connections/BoundedHttp"
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Duration, Effect, Schedule, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as CredentialUse from "../git/CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import type { NewPullRequest, OpenPullRequest, PullRequestTarget } from "../../forge/PullRequests.ts"
import * as Redaction from "../git/Redaction.ts"

/** Time limit for one request and its response, in seconds. */
const requestSecondsMax = 20

/** Time limit for one operation, including its credential and all retries, in seconds. */
const operationSecondsMax = 60

/** Maximum retries of a request that may succeed later. */
const retriesMax = 2

/** Longest wait that a forge may request, in seconds. Longer waits are left to the caller. */
const waitSecondsMax = 20

/** Maximum size of a response. A page of pull requests has tens of thousands of bytes. */
const answerBytesMax = 8 * 1024 * 1024

/** URL of a web page for users. */
export const PageUrl = Schema.String.check(
  Schema.isPattern(/^https?:\/\/[^\s\u0000-\u001f\u007f"<>`\\]{1,2000}$/u, { expected: "an http address" })
)

/** Why a request failed, safe to display. */
export interface Refusal {
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
  /** HTTP status of the response, if there was one. */
  readonly status?: number | undefined
  /** Seconds that the forge asks to wait. */
  readonly waitSeconds?: number | undefined
}

type Branches = Pick<PullRequestTarget, "baseBranch" | "branch">

/** Client for one repository on a forge, with one credential. */
export interface ForgeClient {
  readonly find: (branches: Branches) => Effect.Effect<OpenPullRequest | undefined, Refusal>
  readonly create: (branches: Branches, text: NewPullRequest) => Effect.Effect<OpenPullRequest, Refusal>
}

/** Sends a request, retries it if that can help, and decodes the response with the schema. */
export const ask = <S extends Schema.ConstraintDecoder<unknown>>(
  credential: GitCredential | undefined,
  request: HttpClientRequest.HttpClientRequest,
  answer: S
): Effect.Effect<S["Type"], Refusal> => tell(credential, request, decoded(answer))

/** Sends a request like {@link ask}, but once: for requests whose repetition would have a second effect. */
export const askOnce = <S extends Schema.ConstraintDecoder<unknown>>(
  credential: GitCredential | undefined,
  request: HttpClientRequest.HttpClientRequest,
  answer: S
): Effect.Effect<S["Type"], Refusal> => tellOnce(credential, request, decoded(answer))

const decoded =
  <S extends Schema.ConstraintDecoder<unknown>>(answer: S) =>
  (text: string): Effect.Effect<S["Type"], Refusal> =>
    Effect.mapError(Schema.decodeUnknownEffect(Schema.fromJsonString(answer))(text), () =>
      refused("the forge's answer is not what its API says", checkApi)
    )

/** Sends a request like {@link ask}, and reads the answer with a function. */
export const tell = <A>(
  credential: GitCredential | undefined,
  request: HttpClientRequest.HttpClientRequest,
  read: (text: string) => Effect.Effect<A, Refusal>
): Effect.Effect<A, Refusal> =>
  Effect.retry(tellOnce(credential, request, read), {
    times: retriesMax,
    while: ({ isRetryable, waitSeconds = 0 }) => isRetryable && waitSeconds <= waitSecondsMax,
    schedule: backoff
  })

const tellOnce = <A>(
  credential: GitCredential | undefined,
  request: HttpClientRequest.HttpClientRequest,
  read: (text: string) => Effect.Effect<A, Refusal>
): Effect.Effect<A, Refusal> => {
  const redact = Redaction.make(credential === undefined ? [] : [credential])
  const shown =
    credential === undefined
      ? request
      : HttpClientRequest.bearerToken(request, CredentialUse.apiToken(credential))
  return send(shown).pipe(
    Effect.flatMap(read),
    Effect.mapError((refusal) => ({ ...refusal, detail: redact(refusal.detail) }))
  )
}

/** Limits the duration of an operation. */
export const inTime = <A>(
  operation: Effect.Effect<A, Refusal>,
  seconds: number = operationSecondsMax
): Effect.Effect<A, Refusal> =>
  Effect.timeoutOrElse(operation, {
    duration: Duration.seconds(seconds),
    orElse: () => Effect.fail(silent(seconds))
  })

/** Returns a refusal that a retry does not change. */
export const refused = (detail: string, remedy: string): Refusal => ({ detail, remedy, isRetryable: false })

/** Fails with a refusal that a retry does not change. */
export const refuse = (detail: string, remedy: string) => Effect.fail(refused(detail, remedy))

/** Waits 1 s, then 4 s, or as long as the forge requests if that is longer. */
const backoff = Schedule.exponential("1 second", 4).pipe(
  Schedule.setInputType<Refusal>(),
  Schedule.modifyDelay(({ duration, input }) =>
    Effect.succeed(Duration.max(duration, Duration.seconds(input.waitSeconds ?? 0)))
  )
)

const send = (request: HttpClientRequest.HttpClientRequest): Effect.Effect<string, Refusal> =>
  HttpClientRequest.toWeb(request).pipe(
    Effect.mapError(({ message }) => refused(`the request to the forge failed: ${message}`, checkApi)),
    Effect.flatMap((web) =>
      Effect.mapError(
        BoundedHttp.exchange(web, { secondsMax: requestSecondsMax, answerBytesMax }),
        unanswered
      )
    ),
    Effect.flatMap(({ headers, status, text }) => {
      if (status >= 300 && status < 400) {
        return refuse(
          `it redirects to ${headers["location"] ?? "no address"}, which is not followed`,
          "Use the repository's present address, or the address of its API"
        )
      }
      return status < 300
        ? Effect.succeed(text)
        : Effect.flatMap(answered(status, headers, text), Effect.fail)
    })
  )

const again = `Try again (${named("GitRelay.reopen")})`

const checkApi = `Check the address of its API (${named("Forge.layer")})`

const lookAtIt = "Read the forge's answer; the branch is pushed, and the pull request can be opened by hand"

const remedies: Readonly<Record<number, string>> = {
  401: "Provide a valid token for this server",
  403: "Give the token the right to open pull requests",
  404: "Check the repository's address, and that the token may see it",
  410: "Check the repository's address, and that the token may see it",
  409: lookAtIt,
  422: lookAtIt
}

const answered = Effect.fnUntraced(function* (
  status: number,
  headers: BoundedHttp.HttpAnswer["headers"],
  text: string
): Effect.fn.Return<Refusal> {
  const said = messageOf(text)
  const refusal = { status, detail: `the forge answers ${status}: ${said}` }
  const retryAfter = numberOf(headers["retry-after"])
  const isLimit =
    status === 429 ||
    // GitHub answers 403 both for a rate limit and for a missing right.
    (status === 403 &&
      (retryAfter !== undefined || headers["x-ratelimit-remaining"] === "0" || /\brate limit\b/iu.test(said)))
  if (isLimit) {
    const reset = numberOf(headers["x-ratelimit-reset"])
    const now = (yield* Clock.currentTimeMillis) / 1000
    // If the forge does not say when a limit ends, wait one minute.
    const waitSeconds = retryAfter ?? (reset === undefined ? 60 : Math.max(0, reset - now))
    return { ...refusal, waitSeconds, remedy: `Wait, then ${again.toLowerCase()}`, isRetryable: true }
  }
  return status >= 500
    ? { ...refusal, waitSeconds: retryAfter, remedy: again, isRetryable: true }
    : { ...refusal, remedy: remedies[status] ?? checkApi, isRetryable: false }
})

const numberOf = (header: string | undefined): number | undefined =>
  header !== undefined && /^\d{1,12}$/u.test(header) ? Number(header) : undefined

/** Returns the message of an error response: a text, a list, or lists by field. GitHub adds its reasons in `errors`. */
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

const unanswered = ({ detail, problem }: BoundedHttp.HttpUnanswered): Refusal => {
  switch (problem) {
    case "failed":
      return refused(`the request to the forge failed: ${detail}`, checkApi)
    case "slow":
      return silent(requestSecondsMax)
    case "too_long":
      return refused(detail, checkApi)
    case "unreachable":
      return {
        detail: `the forge cannot be reached: ${detail}`,
        remedy: `Check its address and the network, then ${again.toLowerCase()}`,
        isRetryable: true
      }
    case "untrusted":
      return refused(
        `the forge cannot be trusted (TLS): ${detail}`,
        "Give the certificate of its authority (NODE_EXTRA_CA_CERTS)"
      )
  }
}

const silent = (seconds: number): Refusal => ({
  detail: `the forge did not answer within ${seconds} s`,
  remedy: again,
  isRetryable: true
})
