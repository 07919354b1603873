/**
 * Port for approvals of tool calls: a call asks and waits, and a person or a program decides.
 *
 * A decision counts once: the first one wins, and a later one fails with it. Callers of another account can neither see
 * nor decide. The default has no approver, so every call that needs an approval is refused.
 */
import { Cause, Clock, Context, Deferred, Effect, Layer } from "effect"
import * as Approval from "./Approval.ts"
import type { ApprovalsUnavailable } from "./ApprovalError.ts"
import { ApprovalRefused, ApprovalNotFound, ApprovalOver } from "./ApprovalError.ts"

export interface ApprovalsShape {
  /** Stores a pending approval. */
  readonly request: (
    request: Approval.ApprovalRequest
  ) => Effect.Effect<Approval.Approval, ApprovalRefused | ApprovalsUnavailable>
  /** Waits until an approval of `request` has ended. Reports to the store that its call still waits. */
  readonly settled: (approval: Approval.Approval) => Effect.Effect<Approval.Approval>
  /** Ends an approval unless it has ended, and returns how it did. If the store is gone, it ends as asked. */
  readonly close: (
    approval: Approval.Approval,
    status: "expired" | "cancelled"
  ) => Effect.Effect<Approval.Approval>
  /** Those that wait: the oldest first. All others: the newest first. At most `limits.listedMax`. */
  readonly list: (
    filter: Approval.ApprovalFilter
  ) => Effect.Effect<ReadonlyArray<Approval.Approval>, ApprovalsUnavailable>
  /** Decides a pending approval. */
  readonly decide: (
    decided: Approval.Decided
  ) => Effect.Effect<Approval.Approval, ApprovalNotFound | ApprovalOver | ApprovalsUnavailable>
}

const noApprover = new ApprovalRefused({
  reason: "no_approver",
  detail: "this call needs an approval, and this host has no approver. Continue without it"
})

export const Approvals = Context.Reference<ApprovalsShape>("@cogni/sandbox-core/Approvals", {
  defaultValue: () => ({
    request: () => Effect.fail(noApprover),
    settled: Effect.succeed,
    close: Effect.succeed,
    list: () => Effect.succeed([]),
    decide: () => Effect.fail(new ApprovalNotFound())
  })
})

/** Ended approvals that a store in memory keeps. */
const keptMax = 1000

/** Creates approvals in memory: of this process alone. */
const makeMemory: Effect.Effect<ApprovalsShape> = Effect.sync(() => {
  const rows = new Map<
    string,
    { approval: Approval.Approval; readonly over: Deferred.Deferred<Approval.Approval> }
  >()
  const all = (nowMillis: number) =>
    [...rows.values()].map(({ approval }) => Approval.at(approval, nowMillis))
  const forget = () => {
    for (const [id, { approval }] of rows) {
      if (rows.size <= keptMax) return
      if (approval.status !== "pending") rows.delete(id)
    }
  }
  const end = (id: string, how: Approval.ApprovalEnd, nowMillis: number) => {
    const row = rows.get(id)
    if (row === undefined) return undefined
    row.approval = Approval.end(Approval.at(row.approval, nowMillis), how, nowMillis)
    Deferred.doneUnsafe(row.over, Effect.succeed(row.approval))
    return row.approval
  }
  return {
    request: (request) =>
      Effect.flatMap(Clock.currentTimeMillis, (nowMillis) => {
        const pending = all(nowMillis).filter(
          ({ billingAccountId, status }) =>
            status === "pending" && billingAccountId === request.billingAccountId
        )
        const problem = Approval.fullOf({
          ofRun: pending.filter(({ runId }) => runId === request.runId).length,
          ofAccount: pending.length
        })
        if (problem !== undefined) return Effect.fail(new ApprovalRefused(problem))
        const approval = Approval.begin(request, nowMillis)
        rows.set(approval.id, { approval, over: Deferred.makeUnsafe() })
        forget()
        return Effect.succeed(approval)
      }),
    settled: (approval) => {
      const row = rows.get(approval.id)
      return row === undefined ? Effect.succeed(approval) : Deferred.await(row.over)
    },
    close: (approval, status) =>
      Effect.map(
        Clock.currentTimeMillis,
        (nowMillis) =>
          end(approval.id, { status }, nowMillis) ?? Approval.end(approval, { status }, nowMillis)
      ),
    list: (filter) =>
      Effect.map(Clock.currentTimeMillis, (nowMillis) => {
        const every = all(nowMillis)
        const sorted = filter.status === "pending" ? every : every.toReversed()
        const at = sorted.findIndex(({ id }) => id === filter.after)
        // After an approval that is not kept any more, there is nothing.
        const rest = filter.after === undefined ? sorted : at === -1 ? [] : sorted.slice(at + 1)
        return rest
          .filter((approval) => Approval.includes(filter, approval))
          .slice(0, Approval.limits.listedMax)
      }),
    decide: ({ billingAccountId, by, decision, id, reason }) =>
      Effect.gen(function* () {
        const nowMillis = yield* Clock.currentTimeMillis
        const found = all(nowMillis).find((approval) => approval.id === id)
        if (found === undefined || !Approval.includes({ billingAccountId }, found))
          return yield* new ApprovalNotFound()
        if (found.status !== "pending") return yield* new ApprovalOver({ approval: found })
        return end(id, { status: Approval.endOf(decision), decidedBy: by, reason }, nowMillis) ?? found
      })
  }
})

export const layerMemory: Layer.Layer<never> = Layer.effect(Approvals, makeMemory)

/** Answers a request for an approval. */
type Answer = (
  approval: Approval.Approval
) => Effect.Effect<{ readonly decision: Approval.ApprovalDecision; readonly reason?: string | undefined }>

/** Creates approvals that a function decides. A defect of the function is a denial. */
const makeFunction = (answer: Answer, by: Approval.Decider): Effect.Effect<ApprovalsShape> =>
  Effect.map(makeMemory, (memory) => ({
    ...memory,
    settled: (approval) =>
      Effect.suspend(() => answer(approval)).pipe(
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.failCause(cause)
            : Effect.as(Effect.logError("a function that approves tool calls has failed", cause), {
                decision: "deny" as const,
                reason: "the function that approves calls has failed"
              })
        ),
        Effect.flatMap(({ decision, reason }) => memory.decide({ id: approval.id, decision, by, reason })),
        Effect.catchTags({
          ApprovalNotFound: () => Effect.succeed(approval),
          ApprovalOver: ({ approval: over }) => Effect.succeed(over),
          ApprovalsUnavailable: () => Effect.succeed(approval)
        })
      )
  }))

/** Approvals that a function decides, such as one that asks on a terminal or knows rules of its own. */
export const layerFunction = (
  answer: Answer,
  by: Approval.Decider = { type: "program", id: "function" }
): Layer.Layer<never> => Layer.effect(Approvals, makeFunction(answer, by))
