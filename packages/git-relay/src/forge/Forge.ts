/** Pull requests wherever the origin is: which kind of server it has is known of a few, and said of the others. */
import { Effect, Layer } from "effect"
import type { GitCredentials } from "../GitCredentials.ts"
import * as GitHubPullRequests from "../internal/forge/GitHubPullRequests.ts"
import * as GitLabMergeRequests from "../internal/forge/GitLabMergeRequests.ts"
import { PullRequests } from "./PullRequests.ts"
import { serverOf } from "../Refs.ts"

export type Kind = "github" | "gitlab"

export interface ForgeOptions {
  /** By server, such as `https://git.example.com`. */
  readonly forges?: Readonly<Record<string, Kind>> | undefined
  /** Where the API of a GitHub is, by its server; where its server has it, when it is left out. */
  readonly gitHubApis?: Readonly<Record<string, string>> | undefined
}

/** What a server is unless somebody says otherwise: `gitlab.…` is a GitLab, any other a GitHub. */
export const kindOf = (url: string, { forges = {} }: ForgeOptions = {}): Kind => {
  const server = serverOf(url)
  const said = Object.entries(forges).find(([name]) => serverOf(name) === server)?.[1]
  return said ?? (/^https?:\/\/gitlab\./u.test(server) ? "gitlab" : "github")
}

export const make = Effect.fnUntraced(function* (options: ForgeOptions = {}) {
  const gitlab = yield* GitLabMergeRequests.make
  const apis = yield* Effect.forEach(Object.entries(options.gitHubApis ?? {}), ([server, apiUrl]) =>
    Effect.map(GitHubPullRequests.make({ apiUrl }), (github) => [serverOf(server), github] as const)
  )
  const byServer = new Map(apis)
  const otherwise = yield* GitHubPullRequests.make()
  const at = (url: string) =>
    kindOf(url, options) === "gitlab" ? gitlab : (byServer.get(serverOf(url)) ?? otherwise)
  return PullRequests.of({
    find: (target) => at(target.url).find(target),
    create: (target, text) => at(target.url).create(target, text)
  })
})

export const layer = (options?: ForgeOptions): Layer.Layer<PullRequests, never, GitCredentials> =>
  Layer.effect(PullRequests, make(options))
