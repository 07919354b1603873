/**
 * `PullRequests` at GitLab, where they are merge requests.
 *
 * @see {@link https://docs.gitlab.com/api/merge_requests/}
 */
import { Effect, Layer, Schema } from "effect"
import * as CredentialUse from "./CredentialUse.ts"
import { GitCredentials } from "./GitCredentials.ts"
import { PullRequestFailed } from "./GitRelayError.ts"
import * as ForgeAnswers from "./internal/ForgeAnswers.ts"
import { PullRequests, type PullRequestTarget } from "./PullRequests.ts"
import { repositoryOf, serverOf } from "./Refs.ts"

const MergeRequest = Schema.Struct({ iid: Schema.Int, web_url: ForgeAnswers.PageUrl })

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = Effect.gen(function* () {
  const credentials = yield* GitCredentials

  const ask = <A>(
    { url }: PullRequestTarget,
    use: (client: Client, project: string) => Promise<A>
  ): Effect.Effect<A, PullRequestFailed> =>
    Effect.gen(function* () {
      const credential = yield* credentials
        .get({ url, purpose: "pull_request" })
        .pipe(
          Effect.mapError(
            ({ detail, isRetryable, remedy }) =>
              new PullRequestFailed({ detail: `no credential: ${detail}`, remedy, isRetryable })
          )
        )
      if (credential === undefined) {
        return yield* new PullRequestFailed({
          detail: "GitLab opens no merge request without a token",
          remedy: "Set GITLAB_TOKEN, and GITLAB_HOST where it is not gitlab.com",
          isRetryable: false
        })
      }
      const client = yield* Effect.promise(() => clientFor(serverOf(url), CredentialUse.apiToken(credential)))
      return yield* ForgeAnswers.asked(credential, () => use(client, repositoryOf(url)))
    })

  return PullRequests.of({
    find: Effect.fn("GitLabMergeRequests.find")(function* (target) {
      const { baseBranch: targetBranch, branch: sourceBranch } = target
      const found = yield* ask(target, (client, projectId) =>
        client.MergeRequests.all({
          projectId,
          sourceBranch,
          targetBranch,
          state: "opened",
          maxPages: 1,
          perPage: 1
        })
      )
      const [first] = yield* ForgeAnswers.decoded(Schema.Array(MergeRequest), found)
      return first === undefined ? undefined : { number: first.iid, url: first.web_url }
    }),
    create: Effect.fn("GitLabMergeRequests.create")(function* (target, { body, draft, title }) {
      const made = yield* ask(target, (client, project) =>
        client.MergeRequests.create(
          project,
          target.branch,
          target.baseBranch,
          draft ? `Draft: ${title}` : title,
          {
            description: body
          }
        )
      )
      const { iid, web_url: url } = yield* ForgeAnswers.decoded(MergeRequest, made)
      return { number: iid, url }
    })
  })
})

/** @category layers */
export const layer: Layer.Layer<PullRequests, never, GitCredentials> = Layer.effect(PullRequests, make)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

type Client = Awaited<ReturnType<typeof clientFor>>

const clientFor = async (host: string, token: string) => {
  const { Gitlab } = await import("@gitbeaker/rest")
  // As a bearer: of all headers, only that one is left out where a redirect leads to another host.
  return new Gitlab({ host, oauthToken: token, queryTimeout: ForgeAnswers.requestSecondsMax * 1000 })
}
