/**
 * Pull requests on GitLab, which calls them merge requests.
 *
 * @see {@link https://docs.gitlab.com/api/merge_requests/}
 */
import { Effect, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import type { GitCredential } from "../../GitCredentials.ts"
import { repositoryOf, serverOf } from "../../Refs.ts"
import * as ForgeApi from "./ForgeApi.ts"

const MergeRequest = Schema.Struct({ iid: Schema.Int, web_url: ForgeApi.PageUrl })

/** A listed merge request. The list includes merge requests from a fork's branch of the same name. */
const Listed = Schema.Struct({
  ...MergeRequest.fields,
  source_project_id: Schema.NullOr(Schema.Int),
  target_project_id: Schema.Int
})

const listedMax = 100

export const make = Effect.fnUntraced(function* (
  url: string,
  credential: GitCredential | undefined
): Effect.fn.Return<ForgeApi.ForgeClient, ForgeApi.Refusal> {
  if (credential === undefined) {
    return yield* ForgeApi.refuse(
      "GitLab requires a token to open a merge request",
      "Set GITLAB_TOKEN, and GITLAB_HOST if the server is not gitlab.com"
    )
  }
  const project = encodeURIComponent(repositoryOf(url))
  const merges = `${serverOf(url)}/api/v4/projects/${project}/merge_requests`
  return {
    find: Effect.fnUntraced(function* ({ baseBranch: target_branch, branch: source_branch }) {
      const urlParams = { source_branch, target_branch, state: "opened", per_page: listedMax }
      const request = HttpClientRequest.get(merges, { urlParams })
      const listed = yield* ForgeApi.ask(credential, request, Schema.Array(Listed))
      const own = listed.find((one) => one.source_project_id === one.target_project_id)
      return own === undefined ? undefined : { number: own.iid, url: own.web_url }
    }),
    create: Effect.fnUntraced(function* ({ baseBranch: target_branch, branch: source_branch }, text) {
      const title = text.draft ? `Draft: ${text.title}` : text.title
      const body = { source_branch, target_branch, title, description: text.body }
      const request = HttpClientRequest.bodyJsonUnsafe(HttpClientRequest.post(merges), body)
      const made = yield* ForgeApi.ask(credential, request, MergeRequest)
      return { number: made.iid, url: made.web_url }
    })
  }
})
