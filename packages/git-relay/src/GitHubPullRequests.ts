/**
 * `PullRequests` at GitHub, and at servers of GitHub Enterprise.
 *
 * The credential is asked for with every use and shown to one host only: redirects are not followed. What comes back is
 * believed where it has the form it must have.
 *
 * @see {@link https://docs.github.com/en/rest/pulls/pulls}
 */
import { Effect, Layer, Schema } from "effect"
import * as CredentialUse from "./CredentialUse.ts"
import { type GitCredential, GitCredentials } from "./GitCredentials.ts"
import { type CredentialsUnavailable, PullRequestFailed } from "./GitRelayError.ts"
import * as ForgeAnswers from "./internal/ForgeAnswers.ts"
import { PullRequests, type PullRequestTarget } from "./PullRequests.ts"
import { repositoryOf, serverOf } from "./Refs.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface GitHubOptions {
  /** Where the API is. Left out: `https://api.github.com` for github.com, `/api/v3` of any other server. */
  readonly apiUrl?: string | undefined
}

const PullRequest = Schema.Struct({ number: Schema.Int, html_url: ForgeAnswers.PageUrl })

// -----------------------------------------------------------------------------
// constants
// -----------------------------------------------------------------------------

const retriesMax = 2

/** What GitHub asks one to wait is waited for up to here, once. */
const retryAfterSecondsMax = 20

// -----------------------------------------------------------------------------
// converting
// -----------------------------------------------------------------------------

/** @category converting */
export const apiUrlOf = (url: string, { apiUrl }: GitHubOptions = {}): string => {
  if (apiUrl !== undefined) return apiUrl.replace(/\/+$/u, "")
  const server = serverOf(url)
  return server === "https://github.com" ? "https://api.github.com" : `${server}/api/v3`
}

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = Effect.fnUntraced(function* (options: GitHubOptions = {}) {
  const credentials = yield* GitCredentials

  const ask = <A>(
    { url }: PullRequestTarget,
    use: (client: Client, repository: { readonly owner: string; readonly repo: string }) => Promise<A>
  ): Effect.Effect<A, PullRequestFailed> =>
    Effect.gen(function* () {
      const credential = yield* credentials
        .get({ url, purpose: "pull_request" })
        .pipe(Effect.mapError(withoutCredential))
      const [owner = "", repo = "", ...rest] = repositoryOf(url).split("/")
      if (repo === "" || rest.length > 0) {
        return yield* new PullRequestFailed({
          detail: "the origin's path is not OWNER/NAME, as GitHub has it",
          remedy: "Check the URL, or name the kind of server (forges)",
          isRetryable: false
        })
      }
      const client = yield* Effect.promise(() => clientFor(apiUrlOf(url, options), credential))
      return yield* ForgeAnswers.asked(credential, () => use(client, { owner, repo }))
    })

  return PullRequests.of({
    find: Effect.fn("GitHubPullRequests.find")(function* (target) {
      const { baseBranch: base, branch } = target
      const found = yield* ask(target, async (client, repository) => {
        const head = `${repository.owner}:${branch}`
        return (await client.rest.pulls.list({ ...repository, head, base, state: "open", per_page: 1 })).data
      })
      const [first] = yield* ForgeAnswers.decoded(Schema.Array(PullRequest), found)
      return first === undefined ? undefined : { number: first.number, url: first.html_url }
    }),
    create: Effect.fn("GitHubPullRequests.create")(function* (target, { body, draft, title }) {
      const { baseBranch: base, branch: head } = target
      const opened = (asDraft: boolean) =>
        ask(target, async (client, repository) => {
          const request = { ...repository, head, base, title, body, draft: asDraft }
          return (await client.rest.pulls.create({ ...request, maintainer_can_modify: false })).data
        })
      const made = yield* opened(draft).pipe(
        // Some plans know no drafts.
        Effect.catchIf(
          (error) => draft && /draft pull requests are not supported/iu.test(error.detail),
          () => opened(false)
        )
      )
      const { html_url: url, number } = yield* ForgeAnswers.decoded(PullRequest, made)
      return { number, url }
    })
  })
})

/** @category layers */
export const layer = (options?: GitHubOptions): Layer.Layer<PullRequests, never, GitCredentials> =>
  Layer.effect(PullRequests, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

type Client = Awaited<ReturnType<typeof clientFor>>

const silent = () => undefined

const clientFor = async (baseUrl: string, credential: GitCredential | undefined) => {
  // Loaded when a pull request is wanted: most runs want none.
  const [{ Octokit }, { retry }, { throttling }] = await Promise.all([
    import("@octokit/rest"),
    import("@octokit/plugin-retry"),
    import("@octokit/plugin-throttling")
  ])
  const waitOnce = (seconds: number, _: object, __: object, times: number) =>
    seconds <= retryAfterSecondsMax && times < 1
  return new (Octokit.plugin(retry, throttling))({
    baseUrl,
    userAgent: "cogni-sandbox",
    log: { debug: silent, info: silent, warn: silent, error: silent },
    request: { fetch: ForgeAnswers.boundedFetch, retries: retriesMax },
    throttle: { onRateLimit: waitOnce, onSecondaryRateLimit: waitOnce },
    ...(credential === undefined ? {} : { auth: CredentialUse.apiToken(credential) })
  })
}

const withoutCredential = ({ detail, isRetryable, remedy }: CredentialsUnavailable) =>
  new PullRequestFailed({ detail: `no credential: ${detail}`, remedy, isRetryable })
