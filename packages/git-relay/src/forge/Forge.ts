/** Pull requests on GitHub and GitLab. The kind of a server is derived from its name, unless it is configured. */
import { Effect, Layer } from "effect"
import { GitCredentials } from "../GitCredentials.ts"
import { type CredentialsDenied, type CredentialsUnavailable, PullRequestFailed } from "../GitRelayError.ts"
import * as ForgeApi from "../internal/forge/ForgeApi.ts"
import * as GitHubPullRequests from "../internal/forge/GitHubPullRequests.ts"
import * as GitLabMergeRequests from "../internal/forge/GitLabMergeRequests.ts"
import { serverOf } from "../Refs.ts"
import { PullRequests, type PullRequestTarget } from "./PullRequests.ts"

export type Kind = "github" | "gitlab"

export interface ForgeOptions {
  /** Kind of each server, such as `https://git.example.com`. */
  readonly forges?: Readonly<Record<string, Kind>> | undefined
  /** Address of the API of each GitHub server. Defaults to the standard address for the server. */
  readonly gitHubApis?: Readonly<Record<string, string>> | undefined
}

/** Returns the configured kind of a server. By default, `gitlab.…` is GitLab and any other server is GitHub. */
export const kindOf = (url: string, { forges = {} }: ForgeOptions = {}): Kind => {
  const server = serverOf(url)
  const said = Object.entries(forges).find(([name]) => serverOf(name) === server)?.[1]
  return said ?? (/^https?:\/\/gitlab\./u.test(server) ? "gitlab" : "github")
}

export const make = Effect.fnUntraced(function* (options: ForgeOptions = {}) {
  const credentials = yield* GitCredentials
  const apis = new Map(
    Object.entries(options.gitHubApis ?? {}).map(([server, api]) => [serverOf(server), api])
  )
  const ask = <A>(
    { url }: PullRequestTarget,
    use: (client: ForgeApi.ForgeClient) => Effect.Effect<A, ForgeApi.Refusal>
  ) =>
    Effect.gen(function* () {
      const credential = yield* Effect.mapError(
        credentials.get({ url, purpose: "pull_request" }),
        withoutCredential
      )
      const client = yield* kindOf(url, options) === "gitlab"
        ? GitLabMergeRequests.make(url, credential)
        : GitHubPullRequests.make(url, credential, apis.get(serverOf(url)))
      const ended =
        credential?.ended === undefined ? undefined : Effect.mapError(credential.ended, withoutCredential)
      return yield* ended === undefined ? use(client) : Effect.raceFirst(use(client), ended)
    }).pipe(
      Effect.scoped,
      (asked) => ForgeApi.inTime(asked),
      Effect.mapError(
        ({ detail, isRetryable, remedy }) => new PullRequestFailed({ detail, remedy, isRetryable })
      )
    )
  return PullRequests.of({
    find: (target) => ask(target, (client) => client.find(target)).pipe(Effect.withSpan("Forge.find")),
    create: (target, text) =>
      ask(target, (client) => client.create(target, text)).pipe(Effect.withSpan("Forge.create"))
  })
})

const withoutCredential = ({
  detail,
  isRetryable,
  remedy
}: CredentialsDenied | CredentialsUnavailable): ForgeApi.Refusal => ({
  detail: `no credential: ${detail}`,
  remedy,
  isRetryable
})

export const layer = (options?: ForgeOptions): Layer.Layer<PullRequests, never, GitCredentials> =>
  Layer.effect(PullRequests, make(options))
