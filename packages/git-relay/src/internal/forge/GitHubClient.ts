/** Octokit as this package uses it: silent, at one address, and never longer than somebody waits for it. */
import type { Octokit as Client } from "@octokit/rest"
import * as ForgeAnswers from "./ForgeAnswers.ts"

export interface GitHubClientOptions {
  /** Where the API is. */
  readonly apiUrl: string
  readonly asking: ForgeAnswers.Asking
  /** As Octokit's own options have it. */
  readonly auth: object
}

export type GitHubClient = Client

const nothing = () => undefined

const silent = { debug: nothing, info: nothing, warn: nothing, error: nothing }

export const make = async ({ apiUrl, asking, auth }: GitHubClientOptions): Promise<GitHubClient> => {
  // Loaded when somebody asks: most runs want no pull request.
  const [{ Octokit }, { retry }, { throttling }] = await Promise.all([
    import("@octokit/rest"),
    import("@octokit/plugin-retry"),
    import("@octokit/plugin-throttling")
  ])
  /** Comes before `retry`, to which everything without an answer looks as if it would pass. */
  const sparing = (octokit: Pick<Client, "hook">) => {
    octokit.hook.error("request", (error, options) => {
      if (ForgeAnswers.isFinal(error)) Object.assign(options.request ?? {}, { retries: 0 })
      throw error
    })
  }
  const waitOnce = (seconds: number, _: object, __: object, times: number) =>
    seconds <= ForgeAnswers.retryAfterSecondsMax && times < 1
  return new (Octokit.plugin(sparing, retry, throttling))({
    baseUrl: apiUrl,
    userAgent: "cogni-sandbox",
    log: silent,
    // Without `log` it is the console that hears of what is deprecated. With `retries` here, and not below,
    // anything would be sent again and at once, also what was refused.
    request: { fetch: asking.fetch, log: silent },
    retry: {
      retries: ForgeAnswers.retriesMax,
      // 429: a limit does not pass that fast, and `throttle` knows how long it lasts.
      doNotRetry: [400, 401, 403, 404, 409, 410, 422, 429, 451]
    },
    throttle: { onRateLimit: waitOnce, onSecondaryRateLimit: waitOnce },
    ...auth
  })
}
