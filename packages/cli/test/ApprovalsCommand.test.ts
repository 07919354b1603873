/** Approvals on the command line: listed with their arguments, decided once. No test reaches an engine. */
import * as Approvals from "@cogni/sandbox-core/Approvals"
import * as ApprovalError from "@cogni/sandbox-core/ApprovalError"
import type { Approval, ApprovalRequest } from "@cogni/sandbox-core/Approval"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SqlApprovals from "@cogni/sandbox-sql/SqlApprovals"
import * as Database from "@cogni/sandbox-sql/Database"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as ApprovalsCommand from "../src/ApprovalsCommand.ts"

const request: ApprovalRequest = {
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  billingAccountId: "acme\u001b[2J",
  requestId: "r1",
  tool: "acme__pay",
  effect: "external_side_effect",
  arguments: '{"text":"a  b\\u001b[2J"}',
  argumentsDigest: "d",
  askedBy: {},
  waitSecondsMax: 60
}

const place = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-approvals-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const stored = yield* Layer.build(
    SqlApprovals.layer.pipe(
      Layer.provide(Database.layer({ _tag: "Sqlite", path: join(directory, "cogni.db") }))
    )
  )
  const approvals = yield* Effect.provideContext(Effect.service(Approvals.Approvals), stored)
  return {
    approvals,
    command: (...argv: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const memory = Output.makeMemory()
        const code = yield* Cli.main({
          argv: ["approvals", ...argv],
          environment: { COGNI_STATE_DIR: directory }
        }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
        return { code, stdout: memory.said.stdout, stderr: memory.said.stderr }
      })
  }
})

describe("approvals", () => {
  it.live("lists what waits, approves it once by prefix, and tells who was first", () =>
    Effect.gen(function* () {
      const { approvals, command } = yield* place
      assert.include((yield* command("list")).stderr, "no tool call waits")
      const approval = yield* approvals.request(request)
      const listed = yield* command("list")
      assert.include(listed.stdout, approval.id)
      assert.include(listed.stdout, request.arguments)
      const json: ReadonlyArray<Approval> = JSON.parse((yield* command("list", "-o", "json")).stdout)
      assert.deepStrictEqual(json, [approval])
      const short = yield* command("approve", approval.id.slice(0, 12))
      assert.deepStrictEqual([short.code, (yield* approvals.list({ status: "pending" })).length], [64, 1])
      assert.include(short.stderr, "at least its first 12 digits")
      const approved = yield* command("approve", approval.id.slice(0, 17), "--by", "ana", "--reason", "fine")
      assert.deepStrictEqual([approved.code, approved.stderr], [0, "· the call of acme__pay is approved\n"])
      const late = yield* command("deny", approval.id)
      assert.strictEqual(late.code, 66)
      assert.include(late.stderr, "already approved, by operator ana")
      const [ended] = yield* approvals.list({})
      assert.deepStrictEqual([ended?.decidedBy, ended?.reason], [{ type: "operator", id: "ana" }, "fine"])
      assert.strictEqual((yield* command("deny", "apr-none")).code, 66)
    })
  )

  it("says that a call may have been decided if the store does not answer", () => {
    const error = ApprovalsCommand.doubtful(
      new ApprovalError.ApprovalsUnavailable({ detail: "did not answer", remedy: "Check it" })
    )
    assert.include(error.message, "did not answer. The call may have been decided")
  })

  it("shows the whole arguments in rows with a bar, and the rest on one line", () => {
    const lines = ApprovalsCommand.render(
      {
        ...request,
        id: "apr-00000000-0000-4000-8000-000000000001",
        requestedAt: "2026-01-01T00:00:00.000Z",
        expiresAt: "2026-01-01T00:04:00.000Z",
        status: "denied",
        decidedAt: "2026-01-01T00:01:00.000Z",
        decidedBy: { type: "grant", id: "grant-1" },
        reason: "no\nway"
      },
      22
    )
    assert.deepStrictEqual(lines, [
      "apr-00000000-0000-4000-8000-000000000001  denied at 2026-01-01T00:01:00.000Z by grant grant-1: no way",
      "  run-4f7k2m9q0x1z, account acme^[[2J",
      "┌ acme__pay (external_side_effect), 24 bytes of arguments:",
      '│ {"text":"a  b\\u001b',
      '│ [2J"}',
      "└ acme__pay (external_side_effect), 24 bytes of arguments"
    ])
  })
})
