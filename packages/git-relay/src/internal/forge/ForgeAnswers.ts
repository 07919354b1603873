/** Asking the API of a forge: how long, where, how much of an answer, and what a refusal means. */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { Duration, Effect, Redacted, Schema } from "effect"
import type { GitCredential } from "../../GitCredentials.ts"
import { PullRequestFailed } from "../../GitRelayError.ts"
import * as Redaction from "../git/Redaction.ts"

/** For one request and its answer. */
export const requestSecondsMax = 20

/** For one operation, with its credential and everything that is tried again. */
export const operationSecondsMax = 60

/** How often what may pass is tried again. */
export const retriesMax = 2

/** What a forge asks one to wait is waited for up to here. */
export const retryAfterSecondsMax = 20

/** A page of pull requests has a few ten thousand. */
export const answerBytesMax = 8 * 1024 * 1024

/** A page that people can be sent to. */
export const PageUrl = Schema.String.check(
  Schema.isPattern(/^https?:\/\/[^\s\u0000-\u001f\u007f"<>`\\]{1,2000}$/u, { expected: "an http address" })
)

/** Why nothing came of it, fit to be shown. */
export interface Refusal {
  /** Of the answer, where there was one. */
  readonly status: number | undefined
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
}

/** How a client is to ask. */
export interface Asking {
  /** Follows nobody, waits for nobody too long, and reads no more than an answer may have. */
  readonly fetch: typeof fetch
  /** Aborted when nobody waits any more: what is tried again later would be tried behind the caller's back. */
  readonly signal: AbortSignal
}

/** An answer that is not read any further; asking again changes nothing. */
class AnswerRefused extends Error {
  readonly remedy: string
  constructor(message: string, remedy: string) {
    super(message)
    this.remedy = remedy
  }
}

/** An answer that is a refusal, for clients that make no such error of their own. */
export class StatusRefused extends Error {
  readonly status: number
  readonly response: { readonly headers: Readonly<Record<string, string>> }
  constructor(message: string, response: Response) {
    super(message)
    this.status = response.status
    this.response = { headers: Object.fromEntries(response.headers) }
  }
}

/** Its failure without secrets; broken off with the fiber. */
export const asked = <A>(
  credential: GitCredential | undefined,
  ask: (asking: Asking) => Promise<A>
): Effect.Effect<A, Refusal> =>
  Effect.suspend(() => {
    const shown: Array<GitCredential> = credential === undefined ? [] : [credential]
    return Effect.tryPromise({
      try: (signal) => ask({ signal, fetch: boundedFetch(signal, (one) => shown.push(one)) }),
      catch: (thrown) => refusalOf(thrown, Redaction.make(shown))
    })
  })

/** All of one operation, within its time. */
export const inTime = <A, E>(operation: Effect.Effect<A, E>, otherwise: (refusal: Refusal) => E) =>
  Effect.timeoutOrElse(operation, {
    duration: Duration.seconds(operationSecondsMax),
    orElse: () =>
      Effect.fail(
        otherwise({
          status: undefined,
          detail: `the forge did not answer within ${operationSecondsMax} s`,
          remedy: again,
          isRetryable: true
        })
      )
  })

/** @see {@link Refusal} */
export const failed = ({ detail, isRetryable, remedy }: Omit<Refusal, "status">): PullRequestFailed =>
  new PullRequestFailed({ detail, remedy, isRetryable })

/** What was answered, if it has the form it must have. */
export const decoded = <S extends Schema.ConstraintDecoder<unknown>>(
  schema: S,
  value: unknown
): Effect.Effect<S["Type"], PullRequestFailed> =>
  Schema.decodeUnknownEffect(schema)(value).pipe(
    Effect.mapError(
      () =>
        new PullRequestFailed({
          detail: "the forge's answer is not what its API says",
          remedy: checkApi,
          isRetryable: false
        })
    )
  )

/** Whether asking again would end the same way. */
export const isFinal = (thrown: unknown): boolean =>
  causesOf(thrown).some((one) => one instanceof AnswerRefused || tlsCodes.test(codeOf(one)))

const boundedFetch =
  (signal: AbortSignal, onShown: (credential: GitCredential) => void): typeof fetch =>
  async (input, init) => {
    // A server may repeat what it was shown, also where that was made for this one request.
    const [username = "", secret = ""] = (new Headers(init?.headers).get("authorization") ?? "").split(" ")
    onShown({ username, password: Redacted.make(secret) })
    const response = await fetch(input, {
      ...init,
      redirect: "manual",
      signal: AbortSignal.any([
        signal,
        AbortSignal.timeout(requestSecondsMax * 1000),
        ...(init?.signal === undefined || init.signal === null ? [] : [init.signal])
      ])
    })
    if (response.status >= 300 && response.status < 400 && response.status !== 304) {
      await response.body?.cancel()
      const to = response.headers.get("location") ?? "nowhere"
      throw new AnswerRefused(
        `it redirects to ${to}, which is not followed`,
        "Use the repository's present address, or the address of its API"
      )
    }
    const body = await bounded(response)
    // What has no body may not be given one.
    return new Response([204, 205, 304].includes(response.status) ? null : body, {
      status: response.status,
      headers: [...response.headers].filter(([name]) => !/^content-(?:encoding|length)$/iu.test(name))
    })
  }

const bounded = async (response: Response): Promise<Blob> => {
  const pieces: Array<Uint8Array<ArrayBuffer>> = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength
    if (bytes > answerBytesMax)
      throw new AnswerRefused(`its answer is longer than ${answerBytesMax} bytes`, checkApi)
    pieces.push(piece)
  }
  return new Blob(pieces)
}

const again = "Try again (relay retry)"

const checkApi = "Check the address of its API (GITHUB_API_URL, GITLAB_HOST)"

const remedies: ReadonlyArray<readonly [statuses: ReadonlyArray<number>, remedy: string]> = [
  [[401], "Give a token that is valid, for this server"],
  [[403], "Give the token the right to open pull requests"],
  [[404, 410], "Check the repository's address, and that the token may see it"],
  [[409, 422], "Look at what it says; the branch is pushed, and the pull request can be opened by hand"]
]

/** Of OpenSSL and of Node, when a server is not whom it should be. */
const tlsCodes = /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL|EPROTO/u

const networkCodes = /^(?:E[A-Z]+|EAI_[A-Z]+|UND_ERR_[A-Z_]+)$/u

const refusalOf = (thrown: unknown, redact: Redaction.Redact): Refusal => {
  const causes = causesOf(thrown)
  const answer = causes.map(answerOf).find((one) => one !== undefined)
  const said = redact(messageOf(thrown))
  const status = answer?.status
  const refused = (rest: Pick<Refusal, "remedy" | "isRetryable"> & { readonly detail?: string }) => ({
    status,
    detail: `the forge ${status === undefined ? "says" : `answers ${status}`}: ${said}`,
    ...rest
  })
  if (answer !== undefined) {
    if (isRateLimit(answer, said))
      return refused({ remedy: `Wait, then ${again.toLowerCase()}`, isRetryable: true })
    const known = remedies.find(([statuses]) => statuses.includes(answer.status))
    if (known !== undefined) return refused({ remedy: known[1], isRetryable: false })
    return answer.status >= 500
      ? refused({ remedy: again, isRetryable: true })
      : refused({ remedy: checkApi, isRetryable: false })
  }
  const own = causes.find((one) => one instanceof AnswerRefused)
  if (own !== undefined) return refused({ remedy: own.remedy, isRetryable: false })
  if (causes.some((one) => tlsCodes.test(codeOf(one)))) {
    return refused({
      detail: `the forge cannot be trusted (TLS): ${said}`,
      remedy: "Give the certificate of its authority (NODE_EXTRA_CA_CERTS)",
      isRetryable: false
    })
  }
  if (causes.some((one) => networkCodes.test(codeOf(one)) || isLate(one))) {
    return refused({
      detail: `the forge cannot be reached: ${said}`,
      remedy: `Check its address and the network, then ${again.toLowerCase()}`,
      isRetryable: true
    })
  }
  return refused({ detail: `the forge cannot be asked: ${said}`, remedy: checkApi, isRetryable: false })
}

interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
}

/** Octokit gives a status of its own to what never was answered. */
const answerOf = (thrown: unknown): Answer | undefined => {
  if (typeof thrown !== "object" || thrown === null || !("status" in thrown) || !("response" in thrown))
    return undefined
  const { response, status } = thrown
  if (typeof status !== "number" || typeof response !== "object" || response === null) return undefined
  const headers = "headers" in response ? response.headers : undefined
  return { status, headers: typeof headers === "object" ? { ...headers } : {} }
}

/** At GitHub a limit is a 403, as is a right that is missing. */
const isRateLimit = ({ headers, status }: Answer, said: string): boolean =>
  status === 429 ||
  (status === 403 &&
    (headers["retry-after"] !== undefined ||
      headers["x-ratelimit-remaining"] === "0" ||
      /\brate limit\b/iu.test(said)))

/** Itself and what it came of, outermost first. */
const causesOf = (thrown: unknown): ReadonlyArray<unknown> => {
  const causes: Array<unknown> = []
  let one = thrown
  // Nothing here is deeper; a circle would be.
  while (one !== undefined && one !== null && causes.length < 8) {
    causes.push(one)
    one = typeof one === "object" && "cause" in one ? one.cause : undefined
  }
  return causes
}

const codeOf = (thrown: unknown): string =>
  typeof thrown === "object" && thrown !== null && "code" in thrown && typeof thrown.code === "string"
    ? thrown.code
    : ""

const isLate = (thrown: unknown): boolean =>
  thrown instanceof Error && /^(?:TimeoutError|AbortError)$/u.test(thrown.name)
