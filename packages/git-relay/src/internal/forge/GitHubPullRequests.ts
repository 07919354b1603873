/**
 * `PullRequests` at GitHub, and at servers of GitHub Enterprise.
 *
 * The credential is asked for with every use and shown to one host only: redirects are not followed. What comes back is
 * believed where it has the form it must have.
 *
 * @see {@link https://docs.github.com/en/rest/pulls/pulls}
 */
import { Effect, Layer, Schema } from "effect"
import * as CredentialUse from "../git/CredentialUse.ts"
import { GitCredentials } from "../../GitCredentials.ts"
import { type CredentialsUnavailable, PullRequestFailed } from "../../GitRelayError.ts"
import * as ForgeAnswers from "./ForgeAnswers.ts"
import * as GitHubClient from "./GitHubClient.ts"
import { PullRequests, type PullRequestTarget } from "../../forge/PullRequests.ts"
import { repositoryOf, serverOf } from "../../Refs.ts"

export interface GitHubOptions {
  /** Where the API is. Left out: `https://api.github.com` for github.com, `/api/v3` of any other server. */
  readonly apiUrl?: string | undefined
}

const PullRequest = Schema.Struct({ number: Schema.Int, html_url: ForgeAnswers.PageUrl })

export const apiUrlOf = (url: string, { apiUrl }: GitHubOptions = {}): string => {
  if (apiUrl !== undefined) return apiUrl.replace(/\/+$/u, "")
  const server = serverOf(url)
  return server === "https://github.com" ? "https://api.github.com" : `${server}/api/v3`
}

export const make = Effect.fnUntraced(function* (options: GitHubOptions = {}) {
  const credentials = yield* GitCredentials

  const ask = <A>(
    { url }: PullRequestTarget,
    use: (
      client: GitHubClient.GitHubClient,
      repository: { readonly owner: string; readonly repo: string }
    ) => Promise<A>
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
      const auth = credential === undefined ? {} : { auth: CredentialUse.apiToken(credential) }
      return yield* ForgeAnswers.asked(credential, async (asking) =>
        use(await GitHubClient.make({ apiUrl: apiUrlOf(url, options), asking, auth }), { owner, repo })
      ).pipe(Effect.mapError(ForgeAnswers.failed))
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
    }, inTime),
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
    }, inTime)
  })
})

export const layer = (options?: GitHubOptions): Layer.Layer<PullRequests, never, GitCredentials> =>
  Layer.effect(PullRequests, make(options))

const inTime = <A>(operation: Effect.Effect<A, PullRequestFailed>) =>
  ForgeAnswers.inTime(operation, ForgeAnswers.failed)

const withoutCredential = ({ detail, isRetryable, remedy }: CredentialsUnavailable) =>
  new PullRequestFailed({ detail: `no credential: ${detail}`, remedy, isRetryable })
