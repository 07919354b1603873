/**
 * One pull request for one branch, however often it is asked for.
 */
import { Effect } from "effect"
import type { PullRequest } from "../GitRelay.ts"
import type { PullRequests, PullRequestTarget } from "../PullRequests.ts"

/** Looks before and, since an answer can be lost, also after it has failed to open one. */
export const openOrFind = (
  pullRequests: PullRequests["Service"],
  target: PullRequestTarget,
  text: { readonly title: string; readonly body: string; readonly draft: boolean }
) => {
  const find = Effect.map(pullRequests.find(target), (found): PullRequest | undefined =>
    found === undefined ? undefined : { ...found, existing: true }
  )
  return Effect.flatMap(find, (found) =>
    found !== undefined
      ? Effect.succeed(found)
      : pullRequests.create(target, text).pipe(
          Effect.map((made): PullRequest => ({ ...made, existing: false })),
          Effect.catch((error) =>
            find.pipe(
              Effect.catch(() => Effect.succeed(undefined)),
              Effect.flatMap((after) =>
                after === undefined ? Effect.fail(error) : Effect.succeed({ ...after, existing: false })
              )
            )
          )
        )
  )
}
