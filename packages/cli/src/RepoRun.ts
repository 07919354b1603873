/** A run from the command line that has a repository: what the relay is told of it, and what is said of the relay. */
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GitRelay, RelayObserver, type RelayProgress } from "@cogni/sandbox-git-relay/GitRelay"
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import type { InClone } from "@cogni/sandbox-graph-provider/Repositories"
import type * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Effect } from "effect"
import { refusal } from "./Failure.ts"
import type * as Progress from "./Progress.ts"
import * as RelayReport from "./RelayReport.ts"

/** The clone that an agent works in, and what is delivered of it. */
export const inClone =
  (
    request: RelayRun.RelayRunRequest,
    progress: Progress.Progress
  ): InClone<RelayRun.Delivery, GitRelayError, GitRelay> =>
  (canaries, use) =>
    RelayRun.around({ ...request, canaries }, ({ workspacePath }, began) =>
      use({ workspacePath, within: (argv) => RelayRun.inRepository(argv, request.commitLeftovers) }, began)
    ).pipe(Effect.provideService(RelayObserver, observe(progress)))

/** Into the record, and a patch, or nothing, into its file; only then is it let go. */
export const settle = Effect.fnUntraced(function* (
  delivery: RelayRun.Delivery,
  patch: HostFile.Reservation | undefined
) {
  const { runId } = ("clone" in delivery ? delivery.clone : delivery.checked.clone).request
  const undelivered = (detail: string, remedy: string) => refusal("undelivered", detail, remedy, { runId })
  // What an earlier run has left in the file would be taken for what this one did.
  if (delivery._tag === "Skipped" && patch !== undefined) {
    yield* Effect.mapError(patch.write(""), ({ detail, remedy }) =>
      undelivered(
        `nothing was committed, and the patch could not be emptied: ${patch.path} ${detail}`,
        remedy
      )
    )
  }
  if (delivery._tag === "Patched" && patch !== undefined) {
    yield* Effect.mapError(patch.write(delivery.patch), ({ detail }) =>
      undelivered(
        `the patch could not be written: ${patch.path} ${detail}`,
        `Make room for it, then: cogni-sandbox relay retry ${runId} --patch FILE`
      )
    )
    yield* (yield* GitRelay).discard(runId)
  }
  const store = yield* RunStore
  yield* store
    .annotate(runId, { relay: RelayReport.toJson(delivery) })
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
