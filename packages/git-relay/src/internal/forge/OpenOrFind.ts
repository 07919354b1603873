/** One pull request for one branch, however often it is asked for. */
import { Duration, Effect } from "effect"
import type { PullRequest } from "../../GitRelay.ts"
import { PullRequestFailed } from "../../GitRelayError.ts"
import type { NewPullRequest, PullRequests, PullRequestTarget } from "../../forge/PullRequests.ts"

/** For looking and opening; one minute together with {@link lookAgainSecondsMax}. */
export const openSecondsMax = 45

/** For looking once more. */
export const lookAgainSecondsMax = 15

/** Looks before and, since an answer can be lost, also after it has failed to open one. */
export const openOrFind = (
  pullRequests: PullRequests["Service"],
  target: PullRequestTarget,
  text: NewPullRequest
): Effect.Effect<PullRequest, PullRequestFailed> =>
  Effect.suspend(() => {
    // Whether it may exist although no answer has come.
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
        // What went wrong first is what there is to say.
        Effect.catch(() => Effect.fail(first)),
        Effect.flatMap((found) =>
          // There was none a moment ago, so it is the one that was asked for.
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

const late = () =>
  new PullRequestFailed({
    detail: `the forge did not answer within ${openSecondsMax} s`,
    remedy: "Try again (relay retry)",
    isRetryable: true
  })
