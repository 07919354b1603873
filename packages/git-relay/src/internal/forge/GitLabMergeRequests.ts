/**
 * `PullRequests` at GitLab, where they are merge requests.
 *
 * @see {@link https://docs.gitlab.com/api/merge_requests/}
 */
import { Effect, Layer, Schedule, Schema } from "effect"
import * as CredentialUse from "../git/CredentialUse.ts"
import { GitCredentials } from "../../GitCredentials.ts"
import { PullRequestFailed } from "../../GitRelayError.ts"
import * as ForgeAnswers from "./ForgeAnswers.ts"
import * as GitLabClient from "./GitLabClient.ts"
import { PullRequests, type PullRequestTarget } from "../../forge/PullRequests.ts"
import { repositoryOf, serverOf } from "../../Refs.ts"

const MergeRequest = Schema.Struct({ iid: Schema.Int, web_url: ForgeAnswers.PageUrl })

/** One of a list, where those from a fork's branch of the same name are as well. */
const Listed = Schema.Struct({
  ...MergeRequest.fields,
  source_project_id: Schema.NullOr(Schema.Int),
  target_project_id: Schema.Int
})

const listedMax = 100

export const make = Effect.gen(function* () {
  const credentials = yield* GitCredentials

  const ask = <A>(
    { url }: PullRequestTarget,
    use: (client: GitLabClient.GitLabClient, project: string) => Promise<A>
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
      const token = CredentialUse.apiToken(credential)
      return yield* ForgeAnswers.asked(credential, async (asking) =>
        use(await GitLabClient.make({ host: serverOf(url), asking, token }), repositoryOf(url))
      ).pipe(
        Effect.retry({
          schedule: Schedule.exponential("1 second"),
          times: ForgeAnswers.retriesMax,
          // A limit does not pass that fast.
          while: ({ isRetryable, status }) => isRetryable && status !== 429
        }),
        Effect.mapError(ForgeAnswers.failed)
      )
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
          perPage: listedMax
        })
      )
      const listed = yield* ForgeAnswers.decoded(Schema.Array(Listed), found)
      const own = listed.find((one) => one.source_project_id === one.target_project_id)
      return own === undefined ? undefined : { number: own.iid, url: own.web_url }
    }, inTime),
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
    }, inTime)
  })
})

export const layer: Layer.Layer<PullRequests, never, GitCredentials> = Layer.effect(PullRequests, make)

const inTime = <A>(operation: Effect.Effect<A, PullRequestFailed>) =>
  ForgeAnswers.inTime(operation, ForgeAnswers.failed)
