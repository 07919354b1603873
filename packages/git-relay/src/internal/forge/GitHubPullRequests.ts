/**
 * Pull requests on GitHub and GitHub Enterprise servers.
 *
 * @see {@link https://docs.github.com/en/rest/pulls/pulls}
 */
import { Effect, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import type { GitCredential } from "../../GitCredentials.ts"
import { repositoryOf, serverOf } from "../../Refs.ts"
import * as ForgeApi from "./ForgeApi.ts"

const PullRequest = Schema.Struct({ number: Schema.Int, html_url: ForgeApi.PageUrl })

/** Returns the address of the API: `https://api.github.com` for github.com, `/api/v3` on any other server. */
export const apiUrlOf = (url: string, apiUrl?: string): string => {
  if (apiUrl !== undefined) return apiUrl.replace(/\/+$/u, "")
  const server = serverOf(url)
  return server === "https://github.com" ? "https://api.github.com" : `${server}/api/v3`
}

/** Returns owner and name of a repository. Fails if the path of the URL is not OWNER/NAME. */
export const repository = (url: string) => {
  const [owner = "", repo = "", ...rest] = repositoryOf(url).split("/")
  return repo === "" || rest.length > 0
    ? ForgeApi.refuse(
        "the origin's path is not OWNER/NAME, as GitHub requires",
        "Check the URL, or configure the kind of server (forges)"
      )
    : Effect.succeed({ owner, repo })
}

export const make = Effect.fnUntraced(function* (
  url: string,
  credential: GitCredential | undefined,
  apiUrl?: string
): Effect.fn.Return<ForgeApi.ForgeClient, ForgeApi.Refusal> {
  const { owner, repo } = yield* repository(url)
  const pulls = `${apiUrlOf(url, apiUrl)}/repos/${owner}/${repo}/pulls`
  return {
    find: Effect.fnUntraced(function* ({ baseBranch: base, branch }) {
      const urlParams = { head: `${owner}:${branch}`, base, state: "open", per_page: 1 }
      const request = HttpClientRequest.get(pulls, { urlParams })
      const [first] = yield* ForgeApi.ask(credential, request, Schema.Array(PullRequest))
      return first === undefined ? undefined : { number: first.number, url: first.html_url }
    }),
    create: Effect.fnUntraced(function* ({ baseBranch: base, branch: head }, text) {
      const open = (draft: boolean) => {
        const body = { ...text, head, base, draft, maintainer_can_modify: false }
        const request = HttpClientRequest.bodyJsonUnsafe(HttpClientRequest.post(pulls), body)
        return ForgeApi.ask(credential, request, PullRequest)
      }
      const made = yield* open(text.draft).pipe(
        // Some GitHub plans do not support drafts.
        Effect.catchIf(
          ({ detail }) => text.draft && /draft pull requests are not supported/iu.test(detail),
          () => open(false)
        )
      )
      return { number: made.number, url: made.html_url }
    })
  }
})
