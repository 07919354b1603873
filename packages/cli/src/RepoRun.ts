/** A run from the command line that has a repository: what the relay is told of it, and what is said of the relay. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GitRelay, RelayObserver, type RelayProgress } from "@cogni/sandbox-git-relay/GitRelay"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Effect } from "effect"
import { Refusal } from "./Failure.ts"
import type * as Progress from "./Progress.ts"
import * as RelayReport from "./RelayReport.ts"
import * as RepoPlan from "./RepoPlan.ts"
import type { RunPlan } from "./RunPlan.ts"
import * as UserFiles from "./UserFiles.ts"

/** What came of both. */
export interface RepoResult {
  readonly result: RunResult
  readonly delivery: RelayRun.Delivery
}

/** Clone, live the run in it, deliver. */
export const live = Effect.fnUntraced(function* <E, R>(
  plan: RunPlan,
  repo: RepoPlan.RepoPlan,
  progress: Progress.Progress,
  follow: (plan: RunPlan, began: Effect.Effect<void>) => Effect.Effect<RunResult, E, R>,
  succeeded: (result: RunResult) => boolean
) {
  const patch = yield* UserFiles.reservePatch(repo.patch, undefined)
  const planted = plan.spec.canaries === undefined ? Canary.none : yield* Canary.plant
  yield* progress.now("cloning")
  const { delivery, value } = yield* RelayRun.around(
    { ...repo.request, canaries: planted.canaries },
    (clone, began) =>
      Effect.map(
        follow(RepoPlan.within(plan, repo, clone), began).pipe(
          Effect.provideService(Canary.Planting, Effect.succeed(planted))
        ),
        (result) => ({ result, succeeded: succeeded(result), auditHead: result.llm?.auditHead })
      )
  ).pipe(Effect.provideService(RelayObserver, observe(progress)))
  yield* settle(delivery, patch)
  return { result: value.result, delivery } satisfies RepoResult
})

/** Into the record, and a patch, or nothing, into its file; only then is it let go. */
export const settle = Effect.fnUntraced(function* (
  delivery: RelayRun.Delivery,
  patch: UserFiles.Output | undefined
) {
  const { request } = "clone" in delivery ? delivery.clone : delivery.checked.clone
  // What an earlier run has left in the file would be taken for what this one did.
  if (delivery._tag === "Skipped" && patch !== undefined) {
    yield* patch.write("").pipe(
      Effect.mapError(
        ({ detail, remedy }) =>
          new Refusal({
            exit: "undelivered",
            detail: `nothing was committed, and the patch could not be emptied: ${patch.path} ${detail}`,
            remedy,
            runId: request.runId
          })
      )
    )
  }
  if (delivery._tag === "Patched" && patch !== undefined) {
    yield* patch.write(delivery.patch).pipe(
      Effect.mapError(
        ({ detail }) =>
          new Refusal({
            exit: "undelivered",
            detail: `the patch could not be written: ${patch.path} ${detail}`,
            remedy: `Make room for it, then: cogni-sandbox relay retry ${request.runId} --patch FILE`,
            runId: request.runId
          })
      )
    )
    yield* (yield* GitRelay).discard(request.runId)
  }
  const store = yield* RunStore
  yield* store
    .annotate(request.runId, { relay: RelayReport.toJson(delivery) })
    .pipe(
      Effect.catch((error) => Effect.logWarning("the record of the run could not be written", error.message))
    )
})

/** Shown where a terminal shows progress. */
export const observe =
  (progress: Progress.Progress) =>
  ({ operation, text }: RelayProgress): Effect.Effect<void> =>
    progress.now(
      `${operation === "clone" ? "cloning" : operation === "push" ? "pushing" : operation}: ${text}`
    )
