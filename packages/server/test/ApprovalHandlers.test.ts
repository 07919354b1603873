/** Approvals of tool calls over HTTP: who sees them, who decides, once. */
import type { ApprovalRequest } from "@cogni/sandbox-core/Approval"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import * as ApprovalError from "@cogni/sandbox-core/ApprovalError"
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { answering, serve } from "./ServerWorld.ts"

const hostile = '<img src=x onerror="alert(1)">\u0000\u202e'

const request = (runId: string): ApprovalRequest => ({
  runId: RunId.RunId.make(runId),
  billingAccountId: "acct",
  requestId: "r1",
  tool: "acme__pay",
  effect: "external_side_effect",
  arguments: JSON.stringify({ text: hostile }),
  argumentsDigest: "d".repeat(64),
  askedBy: { graphId: "sandbox:agent" },
  waitSecondsMax: 60
})

const approve = { permissions: { approve: true } }

/** A server with one approval that waits, of a run that has ended. */
const waiting = Effect.gen(function* () {
  const world = yield* serve({ program: answering("Lima"), approvals: Approvals.layerMemory })
  const runner = yield* world.caller()
  const { runId } = yield* runner.chat()
  const approval = yield* Effect.orDie(world.approvals.request(request(runId)))
  return { world, runner, runId, approval, approver: yield* world.caller(approve) }
})

describe("approvals", () => {
  it.effect("are listed for their account and their run, whole and as JSON", () =>
    Effect.gen(function* () {
      const { approval, runId, runner, world } = yield* waiting
      const { billingAccountId: _, ...view } = approval
      for (const path of [
        "/api/v1/approvals?status=pending",
        "/api/v1/approvals",
        `/api/v1/runs/${runId}/approvals`
      ]) {
        const { body, headers, status } = yield* runner.get(path)
        assert.deepStrictEqual([path, status, body], [path, 200, { approvals: [view] }])
        assert.match(headers.get("content-type") ?? "", /^application\/json/u)
        assert.strictEqual(headers.get("cache-control"), "private, no-store")
      }
      assert.deepStrictEqual((yield* runner.get("/api/v1/approvals?status=denied")).body, { approvals: [] })
      assert.strictEqual((yield* runner.get("/api/v1/approvals?status=maybe")).status, 400)
      const stranger = yield* world.caller({ ...approve, billingAccountId: "other" })
      assert.deepStrictEqual((yield* stranger.get("/api/v1/approvals")).body, { approvals: [] })
      assert.strictEqual((yield* stranger.get(`/api/v1/runs/${runId}/approvals`)).status, 404)
    })
  )

  it.effect("are decided once, by a grant of the account that has the right to", () =>
    Effect.gen(function* () {
      const { approval, approver, runner, world } = yield* waiting
      const path = `/api/v1/approvals/${approval.id}`
      const input = { decision: "approve", reason: "agreed with Ana" }
      const denied = yield* runner.send(path, input)
      assert.deepStrictEqual([denied.status, denied.body.error.reason], [403, "ApprovalNotGranted"])
      const stranger = yield* world.caller({ ...approve, billingAccountId: "other" })
      assert.strictEqual((yield* stranger.send(path, input)).status, 404)
      assert.strictEqual((yield* approver.send(path, { decision: "perhaps" })).status, 400)
      assert.strictEqual((yield* approver.send(path, { ...input, reason: "x".repeat(501) })).status, 400)
      const { body, status } = yield* approver.send(path, input)
      assert.deepStrictEqual(
        [status, body.status, body.decidedBy, body.reason],
        [200, "approved", { type: "grant", id: approver.grantId }, input.reason]
      )
      const late = yield* approver.send(path, { decision: "deny" })
      assert.deepStrictEqual([late.status, late.body.error.reason], [409, "ApprovalOver"])
      assert.include(late.body.error.message, "already approved")
      assert.strictEqual((yield* approver.send("/api/v1/approvals/none", input)).status, 404)
    })
  )

  it.effect("report a store that cannot be reached with 503, and no details of it", () =>
    Effect.gen(function* () {
      const gone = Effect.fail(
        new ApprovalError.ApprovalsUnavailable({
          detail: "cannot be reached at db.internal",
          remedy: "Start it"
        })
      )
      const world = yield* serve({
        approvals: Layer.effect(
          Approvals.Approvals,
          Effect.map(
            Effect.provide(Effect.service(Approvals.Approvals), Approvals.layerMemory),
            (memory) => ({ ...memory, list: () => gone, decide: () => gone })
          )
        )
      })
      const approver = yield* world.caller(approve)
      for (const answer of [
        yield* approver.get("/api/v1/approvals"),
        yield* approver.send("/api/v1/approvals/x", { decision: "deny" })
      ]) {
        assert.strictEqual(answer.status, 503)
        assert.notInclude(JSON.stringify(answer.body), "db.internal")
      }
      const lost = yield* approver.send("/api/v1/approvals/x", { decision: "approve" })
      assert.include(lost.body.error.message, "may have been decided")
    })
  )
})
