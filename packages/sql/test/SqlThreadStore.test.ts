/** Threads in a SQLite file: the contract, and another process that reads what the first one left. */
import { assert, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { ThreadStoreContract } from "@cogni/sandbox-graph-provider/testing"
import { keyOf, newFilesName, ownerOf, ThreadId } from "@cogni/sandbox-graph-provider/threads/Thread"
import { ThreadStore } from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import * as SqlThreadStore from "@cogni/sandbox-sql/SqlThreadStore"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string) =>
  SqlThreadStore.layer.pipe(Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "threads.db") })))

ThreadStoreContract.suite("SQLite", Layer.unwrap(Effect.map(Stores.directory, stored)))

const inProcess = <A, E>(path: string, work: Effect.Effect<A, E, SqlClient | ThreadStore>) =>
  Effect.scoped(
    Effect.flatMap(Layer.build(Layer.fresh(stored(path))), (all) => Effect.provideContext(work, all))
  )

it.live(
  "keeps a thread, its history and its session for the next process, which holds it when its time is over",
  () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const name = { billingAccountId: "acct", threadId: ThreadId.make("t") }
      const key = yield* keyOf(name)
      const turn = { runId: yield* RunId.generate, agent: "codex", asked: "word?", answered: "walrus" }
      const hold = { key, holder: "first" }
      yield* inProcess(
        path,
        Effect.gen(function* () {
          const store = yield* ThreadStore
          yield* store.claim(name, hold, 1)
          yield* store.begin(hold, { agent: "codex", host: "here", files: newFilesName(key, store.id) })
          yield* store.end(hold, { turn, sessionId: "s-1", workspaceBytes: 1 })
          // Its answer was lost.
          yield* store.end(hold, { turn, sessionId: "s-1", workspaceBytes: 1 })
        })
      )
      yield* inProcess(
        path,
        Effect.gen(function* () {
          const store = yield* ThreadStore
          assert.deepInclude(yield* store.find(key), { turns: 1, host: "here" })
          const { files } = (yield* store.find(key)) ?? {}
          assert.isTrue(files !== undefined && ownerOf(files).storeId === store.id)
          const next = { key, holder: "second" }
          assert.strictEqual((yield* Effect.flip(store.claimKnown(next)))._tag, "ThreadBusy")
          const sql = yield* SqlClient
          yield* sql`UPDATE cogni_threads SET held_until = used_at`
          assert.strictEqual((yield* store.claimKnown(next))?.turns, 1)
          assert.deepInclude((yield* store.history(key))[0], turn)
          assert.deepStrictEqual(yield* store.sessionOf(key, "codex"), { sessionId: "s-1", turns: 1 })
        })
      )
    })
)
