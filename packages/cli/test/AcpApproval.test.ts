/** Approvals that the user of an editor gives: each goes to the prompt whose run asks. */
import type { AcpQuestion, AcpTurn } from "@cogni/sandbox-acp/AcpSession"
import type { ApprovalRequest } from "@cogni/sandbox-core/Approval"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import * as ApprovalWitness from "@cogni/sandbox-core/ApprovalWitness"
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as AcpApproval from "../src/AcpApproval.ts"

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")

const request: ApprovalRequest = {
  runId,
  billingAccountId: "local",
  requestId: "r1",
  tool: "github__comment",
  effect: "external_side_effect",
  arguments: '{"text":"hi"}',
  argumentsDigest: "d",
  askedBy: {},
  waitSecondsMax: 60
}

const turnOf = (answer: boolean, asked: Array<AcpQuestion>): AcpTurn => ({
  prompt: "",
  earlier: [],
  say: () => Effect.void,
  note: () => Effect.void,
  ask: (question) => Effect.sync(() => (asked.push(question), answer))
})

const asking = Effect.gen(function* () {
  const approvals = yield* Approvals
  return yield* ApprovalWitness.ask(approvals, request, {
    requested: () => Effect.void,
    ended: () => Effect.void
  })
})

describe("AcpApproval", () => {
  it.effect.each([
    [true, "approved"],
    [false, "denied"]
  ] as const)("asks the user of the prompt that runs: %s is %s", ([answer, status]) =>
    Effect.gen(function* () {
      const approval = AcpApproval.make()
      const asked: Array<AcpQuestion> = []
      const ended = yield* asking.pipe(
        approval.during(runId, turnOf(answer, asked)),
        Effect.provide(approval.layer)
      )
      assert.strictEqual(ended.status, status)
      assert.deepStrictEqual(
        asked.map(({ arguments: text, title }) => [title, text]),
        [["github__comment (external_side_effect)", '{"text":"hi"}']]
      )
    })
  )

  it.effect("denies a call of a run whose prompt has ended", () =>
    Effect.gen(function* () {
      const approval = AcpApproval.make()
      yield* Effect.void.pipe(approval.during(runId, turnOf(true, [])))
      const ended = yield* Effect.provide(asking, approval.layer)
      assert.strictEqual(ended.status, "denied")
    })
  )
})
