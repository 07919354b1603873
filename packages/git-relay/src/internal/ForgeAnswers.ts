/**
 * Asking the API of a forge: how long, where, how much of an answer, and what a refusal means.
 */
import { Duration, Effect, Schema } from "effect"
import type { GitCredential } from "../GitCredentials.ts"
import { PullRequestFailed } from "../GitRelayError.ts"
import * as Redaction from "./Redaction.ts"

/** For one request and its answer. */
export const requestSecondsMax = 20

/** For one operation, with everything that is tried again. */
export const operationSecondsMax = 60

/** A page of pull requests has a few ten thousand. */
export const answerBytesMax = 8 * 1024 * 1024

/** A page that people can be sent to. */
export const PageUrl = Schema.String.check(
  Schema.isPattern(/^https?:\/\/[^\s\u0000-\u001f\u007f"<>`\\]{1,2000}$/u, { expected: "an http address" })
)

/** Follows nobody, waits for nobody too long, and reads no more than an answer may have. */
export const boundedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, {
    ...init,
    redirect: "manual",
    signal: AbortSignal.any([
      AbortSignal.timeout(requestSecondsMax * 1000),
      ...(init?.signal === undefined || init.signal === null ? [] : [init.signal])
    ])
  })
  if (response.status >= 300 && response.status < 400 && response.status !== 304) {
    await response.body?.cancel()
    throw new Error(`it redirects to ${response.headers.get("location") ?? "nowhere"}, which is not followed`)
  }
  const text = await bounded(response)
  // What has no body may not be given one.
  return new Response([204, 205, 304].includes(response.status) ? null : text, {
    status: response.status,
    headers: [...response.headers].filter(([name]) => !/^content-(?:encoding|length)$/iu.test(name))
  })
}

/** Its failure as a pull request's, without secrets. */
export const asked = <A>(
  credential: GitCredential | undefined,
  ask: () => Promise<A>
): Effect.Effect<A, PullRequestFailed> => {
  const redact = Redaction.make(credential === undefined ? [] : [credential])
  return Effect.tryPromise({ try: ask, catch: (thrown) => failureOf(thrown, redact) }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(operationSecondsMax),
      orElse: () =>
        Effect.fail(
          new PullRequestFailed({
            detail: `the forge did not answer within ${operationSecondsMax} s`,
            remedy: "Try again (relay retry)",
            isRetryable: true
          })
        )
    })
  )
}

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
          remedy: "Check the address of its API (GITHUB_API_URL, GITLAB_HOST)",
          isRetryable: false
        })
    )
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const bounded = async (response: Response): Promise<Blob> => {
  const pieces: Array<Uint8Array<ArrayBuffer>> = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength
    if (bytes > answerBytesMax) throw new Error(`its answer is longer than ${answerBytesMax} bytes`)
    pieces.push(piece)
  }
  return new Blob(pieces)
}

const remedies: ReadonlyArray<
  readonly [statuses: ReadonlyArray<number>, remedy: string, isRetryable: boolean]
> = [
  [[401], "Give a token that is valid, for this server", false],
  [[403], "Give the token the right to open pull requests, or wait for its rate limit", false],
  [[404, 410], "Check the repository's address, and that the token may see it", false],
  [
    [409, 422],
    "Look at what it says; the branch is pushed, and the pull request can be opened by hand",
    false
  ],
  [[429], "Wait, then try again (relay retry)", true]
]

const statusOf = (thrown: unknown): number | undefined => {
  if (typeof thrown !== "object" || thrown === null) return undefined
  if ("status" in thrown && typeof thrown.status === "number") return thrown.status
  // Gitbeaker has it in the cause.
  return "cause" in thrown
    ? statusOf((thrown.cause as { response?: unknown } | undefined)?.response)
    : undefined
}

const failureOf = (thrown: unknown, redact: Redaction.Redact): PullRequestFailed => {
  const status = statusOf(thrown)
  const said = redact(thrown instanceof Error ? thrown.message : String(thrown))
  const known = remedies.find(([statuses]) => status !== undefined && statuses.includes(status))
  const detail = `the forge ${status === undefined || status === 500 ? "says" : `answers ${status}`}: ${said}`
  return known === undefined
    ? new PullRequestFailed({
        detail,
        remedy: "Try again (relay retry)",
        isRetryable: status === undefined || status >= 500
      })
    : new PullRequestFailed({ detail, remedy: known[1], isRetryable: known[2] })
}
