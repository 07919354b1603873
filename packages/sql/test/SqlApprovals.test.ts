/** Approvals in a SQLite file: the contract, two processes, and a process that is gone. */
import { assert, describe, it } from "@effect/vitest"
import { Approvals } from "@cogni/sandbox-core"
import * as ApprovalWitness from "@cogni/sandbox-core/ApprovalWitness"
import type { Approval, ApprovalRequest } from "@cogni/sandbox-core/Approval"
import * as RunId from "@cogni/sandbox-core/RunId"
import { ApprovalsContract } from "@cogni/sandbox-core/testing"
import { Context, Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as SqlApprovals from "@cogni/sandbox-sql/SqlApprovals"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Await from "../../../test/harness/Await.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string) =>
  SqlApprovals.layer.pipe(Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "approvals.db") })))

ApprovalsContract.suite("SQLite", Layer.unwrap(Effect.map(Stores.directory, stored)))

const opened = (path: string) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(Layer.fresh(stored(path)))
    return {
      approvals: yield* Effect.provideContext(Effect.service(Approvals.Approvals), context),
      sql: Context.get(context, SqlClient)
    }
  })

const request: ApprovalRequest = {
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  billingAccountId: "acct",
  requestId: "r1",
  tool: "acme__pay",
  effect: "state_change",
  arguments: "{}",
  argumentsDigest: "d",
  askedBy: {},
  waitSecondsMax: 60
}

const by = { type: "operator", id: "ana" } as const

describe("SqlApprovals", () => {
  it.live("wakes a call that waits in one process when another decides", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const here = yield* opened(path)
      const there = yield* opened(path)
      const approval = yield* here.approvals.request(request)
      const waiting = yield* Effect.forkChild(here.approvals.settled(approval))
      const decided = yield* there.approvals.decide({ id: approval.id, decision: "approve", by })
      assert.deepStrictEqual(yield* Fiber.join(waiting), decided)
    })
  )

  it.live("cancels a call whose process is gone, and accepts no approval of it", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const { approvals, sql } = yield* opened(path)
      const approval = yield* approvals.request(request)
      yield* sql`UPDATE cogni_approvals SET lease_until = ${approval.requestedAt}`
      assert.deepStrictEqual(yield* approvals.list({ status: "pending" }), [])
      const [gone] = yield* approvals.list({ status: "cancelled" })
      assert.strictEqual(gone?.status, "cancelled")
      const error = yield* Effect.flip(approvals.decide({ id: approval.id, decision: "approve", by }))
      assert.strictEqual(error._tag, "ApprovalOver")
    })
  )

  it.live("renews the lease of a call also while who hears of it is slow", () =>
    Effect.gen(function* () {
      const { approvals, sql } = yield* opened(yield* Stores.directory)
      const heard = yield* Deferred.make<Approval>()
      const lease = Effect.map(
        sql<{ readonly lease_until: string }>`SELECT lease_until FROM cogni_approvals`,
        ([row]) => row?.lease_until
      )
      const requested = Effect.fnUntraced(function* (approval: Approval) {
        const first = yield* lease
        yield* Await.until(
          "the lease is renewed",
          Effect.map(lease, (now) => now !== first)
        )
        yield* Deferred.succeed(heard, approval)
      }, Effect.orDie)
      const waiting = yield* Effect.forkChild(
        ApprovalWitness.ask(approvals, request, { requested, ended: () => Effect.void })
      )
      const { id } = yield* Deferred.await(heard)
      yield* approvals.decide({ id, decision: "approve", by })
      assert.strictEqual((yield* Fiber.join(waiting)).status, "approved")
    })
  )

  it.live("does not revive a call whose lease has ended", () =>
    Effect.gen(function* () {
      const { approvals, sql } = yield* opened(yield* Stores.directory)
      const approval = yield* approvals.request(request)
      yield* sql`UPDATE cogni_approvals SET lease_until = ${approval.requestedAt}`
      assert.strictEqual((yield* approvals.settled(approval)).status, "cancelled")
      assert.deepStrictEqual(yield* approvals.list({ status: "pending" }), [])
    })
  )

  it.live("removes old approvals of every account when it starts", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const { approvals, sql } = yield* opened(path)
      yield* approvals.request(request)
      const kept = yield* approvals.request({ ...request, billingAccountId: "other" })
      yield* sql`UPDATE cogni_approvals SET requested_at = '2020-01-01T00:00:00.000Z'
        WHERE billing_account_id = 'acct'`
      const again = yield* opened(path)
      const listed = yield* again.approvals.list({})
      assert.deepStrictEqual(
        listed.map(({ id }) => id),
        [kept.id]
      )
    })
  )

  it.live("takes no approval from a row that it cannot read", () =>
    Effect.gen(function* () {
      const { approvals, sql } = yield* opened(yield* Stores.directory)
      const approval = yield* approvals.request(request)
      yield* sql`UPDATE cogni_approvals SET requested = '{"status":"approved"}', status = 'approved'`
      assert.deepStrictEqual(yield* approvals.list({}), [])
      assert.strictEqual((yield* approvals.close(approval, "expired")).status, "expired")
    })
  )
})
