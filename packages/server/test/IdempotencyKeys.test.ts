/** Tests run IDs derived from idempotency keys: stable for their account, and unavailable to every other. */
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import * as SharedSecret from "@cogni/sandbox-sql/SharedSecret"
import * as SqliteDatabase from "../../sql/src/SqliteDatabase.ts"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { createHash } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { lasting, question, serve } from "./ServerWorld.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-keys-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** The run ID that earlier versions derived from an account and its key. */
const unkeyed = (account: string, key: string) =>
  `run-${createHash("sha256")
    .update(JSON.stringify([account, key]))
    .digest("hex")
    .slice(0, 32)}`

const world = (path: string) =>
  IdempotencyKeys.layer(SharedSecret.make("idempotency-keys", IdempotencyKeys.secretBytes)).pipe(
    Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "runs.db") }))
  )

const idOf = (path: string, account: string, key: string) =>
  IdempotencyKeys.IdempotencyKeys.use((keys) => keys.runIdOf(account, key)).pipe(
    Effect.provide(Layer.fresh(world(path)))
  )

describe("IdempotencyKeys", () => {
  it.effect("derives the same run ID from a key after a restart, and another one for another account", () =>
    Effect.gen(function* () {
      const [one, other] = [yield* directory, yield* directory]
      const first = yield* idOf(one, "acct", "monday")
      assert.match(first, /^key-[0-9a-f]{32}$/u)
      assert.strictEqual(yield* idOf(one, "acct", "monday"), first)
      assert.notStrictEqual(yield* idOf(one, "bob", "monday"), first)
      assert.notStrictEqual(yield* idOf(one, "acct", "tuesday"), first)
      assert.notStrictEqual(
        yield* idOf(other, "acct", "monday"),
        first,
        "without the secret it cannot be computed"
      )
      assert.notInclude(unkeyed("acct", "monday"), first.slice("key-".length))
    })
  )

  it.effect("refuses an invalid secret, with a remedy", () =>
    Effect.gen(function* () {
      const path = yield* directory
      yield* idOf(path, "acct", "monday")
      const sql = Context.get(yield* Layer.build(Layer.fresh(world(path))), SqlClient)
      yield* sql`UPDATE cogni_server_secrets SET secret = 'abcd'`
      const error = yield* Effect.flip(idOf(path, "acct", "monday"))
      assert.include(error.message, "Delete its row")
    })
  )

  it.effect("lets no other account use or probe the run ID of a key", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const bob = yield* server.caller({ billingAccountId: "bob" })
      const mallory = yield* server.caller({ billingAccountId: "mallory" })
      const guesses = [unkeyed("bob", "monday"), `key-${"0".repeat(32)}`]
      const answers = (before: string) =>
        Effect.forEach([...guesses, before], (runId) =>
          Effect.map(mallory.post({ ...question, runId }), ({ body, status }) => [status, body.error.reason])
        )
      const reserved = guesses.map(() => [400, "RunIdReserved"])
      assert.deepStrictEqual(yield* answers("key-none"), [...reserved, [400, "RunIdReserved"]])
      const run = yield* bob.open(question, { "idempotency-key": "monday" })
      assert.match(run.runId, /^key-[0-9a-f]{32}$/u)
      // The answer is the same after the run began, also to a caller that knows its ID.
      assert.deepStrictEqual(yield* answers(run.runId), [...reserved, [400, "RunIdReserved"]])
      const again = yield* bob.post(question, { "idempotency-key": "monday" })
      assert.strictEqual(again.status, 409)
    })
  )

  it.effect(
    "reserves the run IDs of schedules, but not on the server of a host, whose worker names them",
    () =>
      Effect.gen(function* () {
        const secret = new Uint8Array(IdempotencyKeys.secretBytes)
        const ofQueue = yield* IdempotencyKeys.make(secret, IdempotencyKeys.submittedPrefix)
        const ofHost = yield* IdempotencyKeys.make(secret)
        for (const id of ["nightly-20261127t030000z", "nightly-k3f9x2-20261127t030000z-a1"]) {
          assert.isTrue(ofQueue.isReserved(id), id)
          assert.isFalse(ofHost.isReserved(id), id)
        }
        assert.isFalse(ofQueue.isReserved("nightly-20261127"))
      })
  )
})
