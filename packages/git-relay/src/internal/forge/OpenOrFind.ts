/** Opens at most one pull request for a branch, however often it is called. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Duration, Effect } from "effect"
import type { PullRequest } from "../../RelaySteps.ts"
import { PullRequestFailed } from "../../GitRelayError.ts"
import type { NewPullRequest, PullRequests, PullRequestTarget } from "../../forge/PullRequests.ts"

/** Time limit for the search and the opening, in seconds; one minute together with {@link lookAgainSecondsMax}. */
export const openSecondsMax = 45

/** Time limit for the second search, in seconds. */
export const lookAgainSecondsMax = 15

/** Searches for the pull request before it opens one, and again after a failure, because a response can be lost. */
export const openOrFind = (
  pullRequests: PullRequests["Service"],
  target: PullRequestTarget,
  text: NewPullRequest
): Effect.Effect<PullRequest, PullRequestFailed> =>
  Effect.suspend(() => {
    // Whether a pull request may exist although no response arrived.
    let asked = false
    const open = Effect.gen(function* () {
      const found = yield* pullRequests.find(target)
      if (found !== undefined) return { ...found, existing: true }
      asked = true
      return { ...(yield* pullRequests.create(target, text)), existing: false }
    })
    const lookAgain = (first: PullRequestFailed) =>
      pullRequests.find(target).pipe(
        Effect.timeout(Duration.seconds(lookAgainSecondsMax)),
        // Report the first error.
        Effect.catch(() => Effect.fail(first)),
        Effect.flatMap((found) =>
          // None existed before the request, so this is the requested one.
          found === undefined ? Effect.fail(first) : Effect.succeed({ ...found, existing: false })
        )
      )
    return open.pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(openSecondsMax),
        orElse: () => Effect.fail(late())
      }),
      Effect.catch((error) => (asked ? lookAgain(error) : Effect.fail(error)))
    )
  })

export const late = () =>
  new PullRequestFailed({
    detail: `the forge did not answer within ${openSecondsMax} s`,
    remedy: `Try again (${named("GitRelay.reopen")})`,
    isRetryable: true
  })
