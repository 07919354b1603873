/** Approvals in memory and by a function, and the decision about a call: the contract and properties. */
import { assert, describe, it } from "@effect/vitest"
import { Approvals } from "@cogni/sandbox-core"
import * as Approval from "@cogni/sandbox-core/Approval"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as ApprovalWitness from "@cogni/sandbox-core/ApprovalWitness"
import { ApprovalsContract } from "@cogni/sandbox-core/testing"
import { Deferred, Effect, Fiber, type Layer } from "effect"
import { TestClock } from "effect/testing"

ApprovalsContract.suite("memory", Approvals.layerMemory)

const request = (changes: Partial<Approval.ApprovalRequest> = {}): Approval.ApprovalRequest => ({
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  billingAccountId: "acct",
  requestId: "r1",
  tool: "acme__pay",
  effect: "external_side_effect",
  arguments: "{}",
  argumentsDigest: "d",
  askedBy: {},
  waitSecondsMax: 60,
  ...changes
})

const built = (layer: Layer.Layer<never>) => Effect.provide(Effect.service(Approvals.Approvals), layer)

const heard = () => {
  const seen: Array<string> = []
  const witness: ApprovalWitness.ApprovalWitness = {
    requested: ({ status }) => Effect.sync(() => void seen.push(status)),
    ended: ({ status }) => Effect.sync(() => void seen.push(status))
  }
  return { seen, witness }
}

describe("Approvals", () => {
  it.effect("refuses every call if no approver is configured", () =>
    Effect.gen(function* () {
      const approvals = yield* Approvals.Approvals
      const { seen, witness } = heard()
      const error = yield* Effect.flip(ApprovalWitness.ask(approvals, request(), witness))
      assert.strictEqual(error._tag === "ApprovalRefused" && error.reason, "no_approver")
      assert.deepStrictEqual(seen, [])
    })
  )

  it.effect("takes the answer of a function, and denies a call for which the function fails", () =>
    Effect.gen(function* () {
      const approvals = yield* built(
        Approvals.layerFunction(
          ({ tool }) =>
            tool === "acme__defect"
              ? Effect.die(new Error("inside"))
              : Effect.succeed({ decision: tool === "acme__pay" ? "approve" : "deny", reason: "by rule" }),
          { type: "program", id: "rules" }
        )
      )
      const ends = yield* Effect.forEach(["acme__pay", "acme__drop", "acme__defect"], (tool) =>
        Effect.gen(function* () {
          const { seen, witness } = heard()
          const { decidedBy, status } = yield* ApprovalWitness.ask(approvals, request({ tool }), witness)
          assert.deepStrictEqual([seen, decidedBy?.id], [["pending", status], "rules"])
          return status
        })
      )
      assert.deepStrictEqual(ends, ["approved", "denied", "denied"])
    })
  )

  it.effect("denies a call in time even if who hears of it never ends", () =>
    Effect.gen(function* () {
      const approvals = yield* built(Approvals.layerMemory)
      const { seen, witness } = heard()
      const slow = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        ApprovalWitness.ask(approvals, request(), { ...witness, requested: () => Deferred.await(slow) })
      )
      yield* TestClock.adjust("60 seconds")
      yield* Effect.replicateEffect(Effect.yieldNow, 50)
      const inTime = fiber.pollUnsafe()
      yield* Deferred.succeed(slow, undefined)
      assert.isDefined(inTime)
      assert.strictEqual((yield* Fiber.join(fiber)).status, "expired")
      assert.deepStrictEqual(seen, ["expired"])
    })
  )

  it("shortens a wait beyond the maximum, and a reason", () => {
    const approval = Approval.begin(request({ waitSecondsMax: 1e9 }), 0)
    assert.strictEqual(approval.expiresAt, new Date(Approval.limits.waitSecondsMax * 1000).toISOString())
    const { reason } = Approval.end(approval, { status: "denied", reason: "x".repeat(5000) }, 0)
    assert.strictEqual(reason?.length, Approval.limits.reasonCharactersMax)
  })
})
