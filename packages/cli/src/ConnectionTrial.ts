/** A harmless request that shows whether a server accepts a credential: it reads something, and changes nothing. */
import * as BoundedHttp from "@cogni/sandbox-connections/BoundedHttp"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import { Effect, type Redacted } from "effect"
import type { GitSettings } from "./GitSettings.ts"

/** The part of a connection and its credential that a trial depends on. */
export interface Tried {
  readonly kind: string
  readonly server: string
  readonly secret: Redacted.Redacted<string>
}

/** How a server answered. `unknown`: there was no request, because no harmless one is known. */
export type Verdict =
  | { readonly verdict: "accepted" | "refused" | "doubtful"; readonly url: string; readonly status: number }
  | { readonly verdict: "unreachable"; readonly url: string }
  | { readonly verdict: "unknown" }

const limits = { secondsMax: 20, answerBytesMax: 1024 * 1024 }

/** Returns the address of the request, if there is one. A given URL must belong to the server of the connection. */
export const urlOf = (
  { kind, server }: Pick<Tried, "kind" | "server">,
  git: Pick<GitSettings, "gitHubApi" | "gitHubServer" | "gitLabServer">,
  given: string | undefined
): string | undefined => {
  if (given !== undefined) return given
  if (kind === "gitlab" || server === git.gitLabServer) return `${server}/api/v4/metadata`
  if (server !== git.gitHubServer) return undefined
  const api =
    git.gitHubApi ?? (server === "https://github.com" ? "https://api.github.com" : `${server}/api/v3`)
  return kind === "github_app" ? `${api}/installation/repositories?per_page=1` : `${api}/rate_limit`
}

/** Sends the request. The text of the answer is not kept. */
export const send = (url: string | undefined, { secret }: Pick<Tried, "secret">): Effect.Effect<Verdict> =>
  url === undefined
    ? Effect.succeed({ verdict: "unknown" })
    : Effect.suspend(() =>
        BoundedHttp.exchange(
          new Request(url, {
            headers: { accept: "application/json", ...KeyInjection.header("authorization", secret) }
          }),
          limits
        )
      ).pipe(
        Effect.map(({ status }): Verdict => ({ verdict: verdictOf(status), url, status })),
        Effect.orElseSucceed((): Verdict => ({ verdict: "unreachable", url }))
      )

/** A right that the use does not need may be missing. */
const verdictOf = (status: number): "accepted" | "doubtful" | "refused" =>
  status >= 200 && status < 300 ? "accepted" : status === 401 ? "refused" : "doubtful"
