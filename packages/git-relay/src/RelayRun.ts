/**
 * Runs an agent on a repository: clones before the run, delivers after it, and loses nothing in between.
 *
 *     clone ─► use ─► collect ─► check ─► push, patch ─► pull request ─► delivery
 *
 * Git is not a field of a sandbox's spec: `use` gets a workspace to run in and does not know the origin. If `use`
 * fails, is interrupted or does not succeed, the agent's work is collected and kept, and not pushed.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { Effect, Exit, Fiber } from "effect"
import * as CommitStatement from "./CommitStatement.ts"
import { GitRelay } from "./GitRelay.ts"
import { type Clone, type CloneRequest, type PullRequestText } from "./RelaySteps.ts"
import type { GitRelayError } from "./GitRelayError.ts"
import type { Delivery } from "./DeliveryRecord.ts"
import { repositoryProgram } from "./RelaySteps.ts"

export interface RelayRunRequest extends CloneRequest {
  /** Where the commits go: to a branch of the origin, or only into a patch. */
  readonly deliver: "push" | "patch"
  readonly pullRequest?: PullRequestText | undefined
  /** Also returns pushed commits as a patch, so that they can be shown (default false). */
  readonly keepPatch?: boolean | undefined
}

/** Result of a run. Its commits are delivered only if it succeeded. */
export interface Used {
  readonly succeeded: boolean
  readonly auditHead?: AuditHead | undefined
}

/**
 * Wraps a command so that it runs in the repository. With `message`, changes that it leaves uncommitted are committed.
 */
export const inRepository = (
  argv: readonly [string, ...ReadonlyArray<string>],
  message?: string
): readonly [string, ...Array<string>] => [
  repositoryProgram,
  ...(message === undefined ? [] : ["--commit", message]),
  "--",
  ...argv
]

/**
 * Runs `use` in a clone, and delivers the commits. Fails if cloning fails or `use` fails; in the second case the
 * commits are kept. `use` runs `began` when an agent starts to work in the workspace. Before that, there is nothing to
 * keep. `salvaged` receives what became of the work if `use` fails (default: kept work is logged).
 */
export const around = Effect.fn("RelayRun.around")(function* <A extends Used, E, R, R2 = never>(
  request: RelayRunRequest,
  use: (clone: Clone, began: Effect.Effect<void>) => Effect.Effect<A, E, R>,
  salvaged: (delivery: Delivery) => Effect.Effect<void, never, R2> = logKept
) {
  const relay = yield* GitRelay
  return yield* Effect.scoped(
    Effect.gen(function* () {
      const clone = yield* relay.clone(request)
      let hasBegun = false
      const began = Effect.sync(() => {
        hasBegun = true
      })
      const value = yield* use(clone, began).pipe(
        Effect.onExit((exit) =>
          Exit.isSuccess(exit)
            ? Effect.void
            : hasBegun
              ? Effect.flatMap(salvage(clone, request), salvaged)
              : Effect.ignore(relay.discard(request.runId))
        )
      )
      const delivery = yield* (
        value.succeeded
          ? deliver(
              clone,
              {
                deliver: request.deliver,
                pullRequest: request.pullRequest,
                keepPatch: request.keepPatch
              },
              value.auditHead
            )
          : keep(clone, request)
      ).pipe(
        Effect.catchTag("GitRelayError", (error) =>
          Effect.succeed<Delivery>({ _tag: "Failed", clone, error })
        )
      )
      return { value, delivery }
    })
  )
})

/** Collects, checks and delivers the commits of a workspace: the second half of {@link around}, and all of a retry. */
export const deliver = Effect.fn("RelayRun.deliver")(function* (
  clone: Clone,
  request: Pick<RelayRunRequest, "deliver" | "keepPatch" | "pullRequest" | "uncommittedMessage">,
  auditHead?: AuditHead
): Effect.fn.Return<Delivery, GitRelayError, GitRelay> {
  const relay = yield* GitRelay
  const { createPr = false, runId } = clone.request
  const collected = yield* relay.collect(clone, { uncommittedMessage: request.uncommittedMessage })
  if (collected.tip === undefined) {
    yield* relay.discard(runId)
    return { _tag: "Skipped", clone }
  }
  const checked = yield* relay.check(collected)
  if (request.deliver === "patch") {
    return { _tag: "Patched", checked, patch: yield* relay.patch(checked) }
  }
  // A patch that cannot be made does not prevent a delivery. Made first: a pushed run is removed.
  const patch =
    request.keepPatch === true
      ? yield* Effect.orElseSucceed(relay.patch(checked), () => undefined)
      : undefined
  const pushed = yield* relay.push(checked)
  return {
    _tag: "Pushed",
    checked,
    tip: pushed.tip,
    unchanged: pushed.unchanged,
    pullRequest: createPr ? yield* relay.openPullRequest(pushed, request.pullRequest) : undefined,
    statement: CommitStatement.make(checked, auditHead),
    ...(patch === undefined ? {} : { patch })
  }
})

/** Collects the work, committed or not, and keeps it for a retry. Discards the run if it left no work. */
const keep = Effect.fnUntraced(function* (clone: Clone, { uncommittedMessage }: RelayRunRequest) {
  const relay = yield* GitRelay
  const collected = yield* relay.collect(clone, { uncommittedMessage })
  if (collected.tip !== undefined) return { _tag: "Kept", clone, tip: collected.tip } satisfies Delivery
  yield* relay.discard(clone.request.runId)
  return { _tag: "Skipped", clone } satisfies Delivery
})

/** Keeps the work of a failed run. Never fails, so that the run's own error is reported. */
const salvage = (clone: Clone, request: RelayRunRequest): Effect.Effect<Delivery, never, GitRelay> =>
  keep(clone, request).pipe(
    Effect.catchTag("GitRelayError", (error) => Effect.succeed<Delivery>({ _tag: "Failed", clone, error })),
    // In a separate fiber, because an uninterruptible effect cannot be timed out.
    Effect.forkDetach({ startImmediately: true }),
    Effect.flatMap(Fiber.join)
  )

const logKept = (delivery: Delivery): Effect.Effect<void> => {
  switch (delivery._tag) {
    case "Kept":
      return Effect.logWarning(
        `the work of ${delivery.clone.request.runId} is kept in ${delivery.clone.directory}, not delivered. To deliver it, use ${named("GitRelay.reopen")}`
      )
    case "Failed":
      return Effect.logWarning(
        `the work of ${delivery.clone.request.runId} could not be collected, and is kept in ${delivery.clone.directory}: ${delivery.error.message}`
      )
    default:
      return Effect.void
  }
}
