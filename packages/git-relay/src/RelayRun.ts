/**
 * A run with a repository: clone before it, deliver after it, lose nothing in between.
 *
 *     clone ─► use ─► collect ─► check ─► push, patch ─► pull request ─► what became of it
 *
 * Git is no field of a sandbox's spec: `use` is given a workspace to run in and knows nothing of origins. When it
 * fails, is interrupted, or did not succeed, what the agent has done is taken out and kept, and not pushed.
 */
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import { Effect, Exit, Fiber, Schema } from "effect"
import * as CommitStatement from "./CommitStatement.ts"
import {
  type Checked,
  type Clone,
  type CloneRequest,
  GitRelay,
  type PullRequest,
  type PullRequestText
} from "./GitRelay.ts"
import type { GitRelayError } from "./GitRelayError.ts"
import { BranchName, CommitId } from "./Refs.ts"

export interface RelayRunRequest extends CloneRequest {
  /** Where the commits go: to a branch of the origin, or into a patch and no further. */
  readonly deliver: "push" | "patch"
  readonly pullRequest?: PullRequestText | undefined
}

/** What became of a run's commits. */
export type Delivery =
  /** The agent committed nothing, and left nothing that could be. */
  | { readonly _tag: "Skipped"; readonly clone: Clone }
  | {
      readonly _tag: "Pushed"
      readonly checked: Checked
      readonly tip: CommitId
      /** It was there already. */
      readonly unchanged: boolean
      readonly pullRequest: PullRequest | undefined
      readonly statement: CommitStatement.CommitStatement
    }
  /** It is kept until it is discarded: whoever asked for it has not put it anywhere yet. */
  | { readonly _tag: "Patched"; readonly checked: Checked; readonly patch: Uint8Array }
  /** The run did not succeed: its commits wait to be taken up, or dropped. */
  | { readonly _tag: "Kept"; readonly clone: Clone; readonly tip: CommitId }
  /** They were refused, or could not be sent: they wait likewise. What the run came to is as good as any. */
  | { readonly _tag: "Failed"; readonly clone: Clone; readonly error: GitRelayError }

/** A delivery, as the record of a run has it (under `relay`). */
export const DeliveryRecord = Schema.Struct({
  status: Schema.Literals(["skipped", "pushed", "unchanged", "patched", "kept", "failed"]),
  origin: Schema.String,
  branch: BranchName,
  baseBranch: Schema.optionalKey(Schema.String),
  baseCommit: Schema.optionalKey(CommitId),
  tip: Schema.optionalKey(CommitId),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Why, where it was not delivered. */
  message: Schema.optionalKey(Schema.String),
  /** Where the commits are, where they were not delivered. */
  keptAt: Schema.optionalKey(Schema.String),
  statement: Schema.optionalKey(CommitStatement.CommitStatement)
})

export type DeliveryRecord = typeof DeliveryRecord.Type

/** What a run came to, and whether that is to be pushed. */
export interface Used {
  readonly succeeded: boolean
  readonly auditHead?: AuditHead | undefined
}

export const leftoversMessage = "Changes that the agent left uncommitted"

/** The program in the runtime image that works in the repository, and commits what is left. */
export const repositoryProgram = "/usr/local/bin/cogni-repo"

/** The same command, in the repository; `message` has what it leaves uncommitted committed. */
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
 * Live a run in a clone, and deliver what it committed. Fails where it cannot be cloned, and as `use` does; then the
 * commits are kept, which is said in the log. `began` is for `use` to say that an agent works in the workspace now:
 * before that, there is nothing that could be lost.
 */
export const around = Effect.fn("RelayRun.around")(function* <A extends Used, E, R>(
  request: RelayRunRequest,
  use: (clone: Clone, began: Effect.Effect<void>) => Effect.Effect<A, E, R>
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
              ? salvage(clone, request)
              : Effect.ignore(relay.discard(request.runId))
        )
      )
      const delivery = yield* (
        value.succeeded
          ? deliver(clone, { deliver: request.deliver, pullRequest: request.pullRequest }, value.auditHead)
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

/** Collect, check and send on what a workspace holds: the second half of {@link around}, and all of a retry. */
export const deliver = Effect.fn("RelayRun.deliver")(function* (
  clone: Clone,
  request: Pick<RelayRunRequest, "deliver" | "pullRequest" | "commitLeftovers">,
  auditHead?: AuditHead
): Effect.fn.Return<Delivery, GitRelayError, GitRelay> {
  const relay = yield* GitRelay
  const { createPr = false, runId } = clone.request
  const collected = yield* relay.collect(clone, { commitLeftovers: request.commitLeftovers })
  if (collected.tip === undefined) {
    yield* relay.discard(runId)
    return { _tag: "Skipped", clone }
  }
  const checked = yield* relay.check(collected)
  if (request.deliver === "patch") {
    return { _tag: "Patched", checked, patch: yield* relay.patch(checked) }
  }
  const pushed = yield* relay.push(checked)
  return {
    _tag: "Pushed",
    checked,
    tip: pushed.tip,
    unchanged: pushed.unchanged,
    pullRequest: createPr ? yield* relay.openPullRequest(pushed, request.pullRequest) : undefined,
    statement: CommitStatement.make(checked, auditHead)
  }
})

export const recordOf = (delivery: Delivery): DeliveryRecord => {
  const clone = "checked" in delivery ? delivery.checked.clone : delivery.clone
  const { baseBranch, baseCommit, branch, directory: keptAt, request } = clone
  const facts = { origin: request.url, branch, baseBranch, baseCommit }
  switch (delivery._tag) {
    case "Skipped":
      return { status: "skipped", ...facts }
    case "Kept":
      return { status: "kept", ...facts, tip: delivery.tip, keptAt }
    case "Failed":
      return { status: "failed", ...facts, message: delivery.error.message, keptAt }
    case "Patched":
      return { status: "patched", ...facts, tip: delivery.checked.tip }
    case "Pushed": {
      const { pullRequest, statement, tip, unchanged } = delivery
      const opened = pullRequest === undefined ? {} : { pullRequestUrl: pullRequest.url }
      return { status: unchanged ? "unchanged" : "pushed", ...facts, tip, ...opened, statement }
    }
  }
}

/** Take out what there is, committed or not, and leave it where a retry finds it. Nothing at all is nothing to keep. */
const keep = Effect.fnUntraced(function* (clone: Clone, { commitLeftovers }: RelayRunRequest) {
  const relay = yield* GitRelay
  const collected = yield* relay.collect(clone, { commitLeftovers })
  if (collected.tip !== undefined) return { _tag: "Kept", clone, tip: collected.tip } satisfies Delivery
  yield* relay.discard(clone.request.runId)
  return { _tag: "Skipped", clone } satisfies Delivery
})

/** Never fails, and never stands in the way of why the run failed. */
const salvage = (clone: Clone, request: RelayRunRequest) =>
  keep(clone, request).pipe(
    Effect.flatMap((delivery) =>
      delivery._tag === "Kept"
        ? Effect.logWarning(
            `what the agent had done is kept, and not delivered: cogni-sandbox relay retry ${clone.request.runId}${
              request.deliver === "patch" ? " --patch FILE" : ""
            }`
          )
        : Effect.void
    ),
    Effect.catchTag("GitRelayError", (error) =>
      Effect.logWarning(`what the agent had done is kept as it is: ${error.message}`)
    ),
    // In a fiber of its own: what must not be interrupted cannot be timed out either.
    Effect.forkDetach({ startImmediately: true }),
    Effect.flatMap(Fiber.join)
  )
