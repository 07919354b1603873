/** Connects a run with `--repo` to the relay: its clone, its delivery, and the relay's progress. */
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { GitRelay, RelayObserver, type RelayProgress } from "@cogni/sandbox-git-relay/GitRelay"
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import type * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import type { InClone } from "@cogni/sandbox-graph-provider/RepositoryUse"
import type * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Effect } from "effect"
import { refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import type * as Progress from "./Progress.ts"
import * as RelayReport from "./RelayReport.ts"

/**
 * Runs an agent in a clone, and delivers its commits. If the run fails or is interrupted, its work is recorded and
 * reported, and `salvaged` receives what became of it. `patch` is the file that the user named for the commits.
 */
export const inClone =
  (
    request: RelayRun.RelayRunRequest,
    patch: string | undefined,
    progress: Progress.Progress,
    salvaged: (delivery: DeliveryRecord.Delivery) => void
  ): InClone<DeliveryRecord.Delivery, GitRelayError, GitRelay | RunStore | Output.Output> =>
  (canaries, use) =>
    RelayRun.around(
      { ...request, canaries },
      ({ workspacePath }, began) =>
        use(
          { workspacePath, within: (argv) => RelayRun.inRepository(argv, request.uncommittedMessage) },
          began
        ),
      Effect.fnUntraced(function* (delivery) {
        salvaged(delivery)
        yield* record(delivery)
        yield* progress.rest
        // Also with --quiet and after an interruption: otherwise nothing says where the commits are.
        if (delivery._tag !== "Skipped")
          yield* Output.note(`warning: ${RelayReport.describe(delivery, patch)}`)
      })
    ).pipe(Effect.provideService(RelayObserver, observe(progress)))

/** Writes the patch file, or empties it, and records the delivery. Discards kept commits only after the patch. */
export const settle = Effect.fnUntraced(function* (
  delivery: DeliveryRecord.Delivery,
  patch: HostFile.Reservation | undefined
) {
  const runId = runOf(delivery)
  const undelivered = (detail: string, remedy: string) => refusal("undelivered", detail, remedy, { runId })
  // Otherwise the file could contain the patch of an earlier run.
  if (delivery._tag === "Skipped" && patch !== undefined) {
    yield* Effect.mapError(patch.write(""), ({ detail, remedy }) =>
      undelivered(
        `nothing was committed, and the patch file could not be emptied: ${patch.path} ${detail}`,
        remedy
      )
    )
  }
  if (delivery._tag === "Patched" && patch !== undefined) {
    yield* Effect.mapError(patch.write(delivery.patch), ({ detail }) =>
      undelivered(
        `the patch could not be written: ${patch.path} ${detail}`,
        `Make room for it, then retry: cogni-sandbox relay retry ${runId} --patch FILE`
      )
    )
    yield* (yield* GitRelay).discard(runId)
  }
  yield* record(delivery)
})

const runOf = (delivery: DeliveryRecord.Delivery) =>
  ("clone" in delivery ? delivery.clone : delivery.checked.clone).request.runId

/** Adds a delivery to the record of its run. */
const record = (delivery: DeliveryRecord.Delivery) =>
  RunStore.use((store) => store.annotate(runOf(delivery), { relay: RelayReport.toJson(delivery) })).pipe(
    Effect.catch((error) => Effect.logWarning("the record of the run could not be written", error.message))
  )

/** Returns an observer that shows the progress of the relay, on a terminal only. */
export const observe =
  (progress: Progress.Progress) =>
  ({ operation, text }: RelayProgress): Effect.Effect<void> =>
    progress.now(
      `${operation === "clone" ? "cloning" : operation === "push" ? "pushing" : operation}: ${text}`
    )
