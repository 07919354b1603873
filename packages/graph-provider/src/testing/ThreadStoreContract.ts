/** Contract of `ThreadStore`: one holder at a time, and a history that survives it. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { keyOf, newFilesName, ThreadId, type ThreadName } from "../threads/Thread.ts"
import { ThreadStore } from "../threads/ThreadStore.ts"
import { type Hold } from "../threads/Thread.ts"

const threadsMax = 3

/** A held thread of a new account. */
const claimed = Effect.fnUntraced(function* (changes: Partial<ThreadName> = {}) {
  const store = yield* ThreadStore
  const name: ThreadName = {
    billingAccountId: `acct-${crypto.randomUUID()}\u0000`,
    threadId: ThreadId.make("../../etc/passwd \u{1F600}\u202e'; DROP TABLE cogni_threads; --"),
    ...changes
  }
  const hold: Hold = { key: yield* keyOf(name), holder: crypto.randomUUID() }
  const thread = yield* store.claim(name, hold, threadsMax)
  return { hold, name, store, thread }
})

/** A text that a store may not handle: markup, NUL, half a character, and one beyond 16 bits. */
const hostile = '<b onload="x">\u0000\ud800\u{1F600}\u202e\u001b[2J'

const turnOf = Effect.fnUntraced(function* (agent = "codex", asked = hostile) {
  return { runId: yield* RunId.generate, agent, asked, answered: `answer ${hostile}` }
})

const filesOf = ({ key }: Hold, { id }: ThreadStore["Service"]) => newFilesName(key, id)

const other = (hold: Hold): Hold => ({ ...hold, holder: crypto.randomUUID() })

export const suite = <E>(name: string, layer: Layer.Layer<ThreadStore, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`ThreadStore (${name})`, (it) => {
    it.effect("creates a thread on its first claim, and keeps its turns as they were", () =>
      Effect.gen(function* () {
        const { hold, name, store, thread } = yield* claimed()
        assert.deepInclude(thread, { ...name, key: hold.key, turns: 0, workspaceBytes: 0, isBusy: true })
        const turn = yield* turnOf()
        yield* store.begin(hold, { agent: turn.agent, host: "here", files: filesOf(hold, store) })
        yield* store.end(hold, { turn, sessionId: "s-1", workspaceBytes: 4096 })
        yield* store.release(hold)
        const [kept, ...others] = yield* store.history(hold.key)
        assert.deepStrictEqual(others, [])
        assert.deepStrictEqual(kept, { ...turn, at: kept?.at ?? "" })
        const found = yield* store.find(hold.key)
        assert.deepInclude(found, { ...name, turns: 1, host: "here", workspaceBytes: 4096, isBusy: false })
        assert.isAbove(found?.historyBytes ?? 0, 0)
      })
    )

    it.effect(
      "keeps the name of the files until they are forgotten; their size is unknown while a turn runs",
      () =>
        Effect.gen(function* () {
          const { hold, store, thread } = yield* claimed()
          assert.match(store.id, /^[0-9a-f]{16}$/u)
          assert.isUndefined(thread.files)
          const files = filesOf(hold, store)
          yield* store.begin(hold, { agent: "codex", host: "here", files })
          yield* store.end(hold, { turn: yield* turnOf(), workspaceBytes: 7 })
          assert.deepInclude(yield* store.find(hold.key), { files, workspaceBytes: 7 })
          yield* store.begin(hold, { agent: "codex", host: "here", files })
          assert.deepInclude(yield* store.find(hold.key), { files, workspaceBytes: 0 })
          yield* store.forget(hold, { history: true })
          assert.isUndefined((yield* store.find(hold.key))?.files)
        })
    )

    it.effect("returns the newest turns that the limits allow, oldest first, and always one", () =>
      Effect.gen(function* () {
        const { hold, store } = yield* claimed()
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        for (const text of ["1", "2", "33", "4"]) {
          const turn = { runId: yield* RunId.generate, agent: "codex", asked: text, answered: text }
          yield* store.end(hold, { turn, workspaceBytes: 1 })
        }
        for (const [part, asked] of [
          [{}, "1 2 33 4"],
          [{ turnsMax: 2 }, "33 4"],
          [{ before: 4, turnsMax: 2 }, "2 33"],
          [{ before: 1 }, ""],
          [{ after: 2 }, "33 4"],
          [{ after: 4 }, ""],
          [{ bytesMax: 6 }, "33 4"],
          [{ bytesMax: 5 }, "4"],
          [{ bytesMax: 0 }, "4"],
          [{ before: 4, bytesMax: 1 }, "33"]
        ] as const) {
          const found = yield* store.history(hold.key, part)
          assert.strictEqual(found.map((turn) => turn.asked).join(" "), asked, JSON.stringify(part))
        }
      })
    )

    it.effect("refuses a second holder until the first one has ended, and says how long that can take", () =>
      Effect.gen(function* () {
        const { hold, name, store } = yield* claimed()
        const second = other(hold)
        for (const claim of [store.claim(name, second, threadsMax), store.claimKnown(second)]) {
          const error = yield* Effect.flip(claim)
          assert.strictEqual(error._tag, "ThreadBusy")
          if (error._tag === "ThreadBusy") assert.isAtLeast(error.retrySeconds, 1)
        }
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        yield* store.release(hold)
        assert.strictEqual((yield* store.claimKnown(second))?.key, hold.key)
      })
    )

    it.effect("gives a thread to one of many that claim it at the same moment", () =>
      Effect.gen(function* () {
        const { hold, name, store } = yield* claimed()
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        yield* store.release(hold)
        const claims = Array.from({ length: 8 }, () =>
          Effect.isSuccess(store.claim(name, other(hold), threadsMax))
        )
        const won = yield* Effect.all(claims, { concurrency: "unbounded" })
        assert.lengthOf(
          won.filter((one) => one),
          1
        )
      })
    )

    it.effect("changes nothing for a holder that has lost its thread", () =>
      Effect.gen(function* () {
        const { hold, store } = yield* claimed()
        const late = other(hold)
        for (const change of [
          store.renew(late),
          store.begin(late, { agent: "codex", host: "elsewhere", files: filesOf(late, store) }),
          store.end(late, { turn: yield* turnOf(), workspaceBytes: 1 }),
          store.resize(late, 1),
          store.forget(late, { history: false })
        ])
          assert.strictEqual((yield* Effect.flip(change))._tag, "ThreadLost")
        yield* store.release(late)
        yield* store.renew(hold)
        assert.deepStrictEqual(yield* store.history(hold.key), [])
        assert.isUndefined((yield* store.find(hold.key))?.host)
      })
    )

    it.effect("has no session to continue from the beginning of a turn to its end", () =>
      Effect.gen(function* () {
        const { hold, store } = yield* claimed()
        const session = store.sessionOf(hold.key, "codex")
        assert.isUndefined(yield* session)
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        yield* store.end(hold, { turn: yield* turnOf(), sessionId: "s-1", workspaceBytes: 1 })
        assert.deepStrictEqual(yield* session, { sessionId: "s-1", turns: 1 })
        assert.isUndefined(yield* store.sessionOf(hold.key, "pi"))
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        assert.isUndefined(yield* session)
        yield* store.end(hold, { turn: yield* turnOf(), workspaceBytes: 1 })
        assert.isUndefined(yield* session)
        assert.lengthOf(yield* store.history(hold.key), 2)
      })
    )

    it.effect("sums the sizes of each account's files, and counts those whose size is not known", () =>
      Effect.gen(function* () {
        const { hold, name, store } = yield* claimed()
        const { billingAccountId } = name
        const large = 3 * 1024 ** 3
        const files = filesOf(hold, store)
        const others = filesOf(hold, store)
        const sizes = store.sizesOf([
          files,
          ...Array.from({ length: 600 }, () => filesOf(hold, store)),
          others
        ])
        assert.deepStrictEqual(yield* sizes, [])
        yield* store.begin(hold, { agent: "codex", host: "here", files })
        assert.deepStrictEqual(yield* sizes, [{ billingAccountId, count: 1, bytes: 0, unmeasured: 1 }])
        yield* store.end(hold, { turn: yield* turnOf(), workspaceBytes: large })
        const ended = { billingAccountId, count: 1, bytes: large, unmeasured: 0 }
        assert.deepStrictEqual(yield* sizes, [ended])
        // Names that are asked for together with those, but in another query.
        const same = yield* claimed({ billingAccountId, threadId: ThreadId.make("2") })
        yield* store.begin(same.hold, { agent: "codex", host: "here", files: others })
        assert.deepStrictEqual(yield* sizes, [{ ...ended, count: 2, unmeasured: 1 }])
        const more = yield* claimed()
        const theirs = filesOf(more.hold, store)
        yield* store.begin(more.hold, { agent: "codex", host: "there", files: theirs })
        // Its host died: nothing holds the thread, and its files are still not measured.
        yield* store.release(more.hold)
        assert.sameDeepMembers(
          [...(yield* store.sizesOf([theirs, files]))],
          [ended, { billingAccountId: more.name.billingAccountId, count: 1, bytes: 0, unmeasured: 1 }]
        )
        assert.deepStrictEqual(yield* store.sizesOf([]), [])
      })
    )

    it.effect(
      "limits the threads of an account, but not of others; a thread that never began does not count",
      () =>
        Effect.gen(function* () {
          const first = yield* claimed()
          const { billingAccountId } = first.name
          const more = (threadId: string) => claimed({ billingAccountId, threadId: ThreadId.make(threadId) })
          yield* more("2")
          const third = yield* more("3")
          const error = yield* Effect.flip(more("4"))
          assert.deepInclude(error, { _tag: "ThreadLimitReached", limit: "threads", max: threadsMax })
          yield* claimed()
          yield* third.store.release(third.hold)
          yield* more("4")
          assert.include(yield* first.store.accounts, billingAccountId)
        })
    )

    it.effect("never mixes two accounts, whatever the names of their threads", () =>
      Effect.gen(function* () {
        const threadId = ThreadId.make("same")
        const one = yield* claimed({ threadId })
        const two = yield* claimed({ threadId })
        assert.notStrictEqual(one.hold.key, two.hold.key)
        const { billingAccountId } = one.name
        const listed = yield* one.store.list({ billingAccountId })
        assert.deepStrictEqual(
          listed.map(({ key }) => key),
          [one.hold.key]
        )
      })
    )

    it.effect("resets a thread, which keeps its history; or forgets it", () =>
      Effect.gen(function* () {
        const { hold, store } = yield* claimed()
        yield* store.begin(hold, { agent: "codex", host: "here", files: filesOf(hold, store) })
        yield* store.end(hold, { turn: yield* turnOf(), sessionId: "s-1", workspaceBytes: 7 })
        yield* store.resize(hold, 3 * 1024 ** 3)
        assert.strictEqual((yield* store.find(hold.key))?.workspaceBytes, 3 * 1024 ** 3)
        yield* store.forget(hold, { history: true })
        assert.isUndefined(yield* store.sessionOf(hold.key, "codex"))
        const reset = yield* store.find(hold.key)
        assert.deepInclude(reset, { turns: 1, workspaceBytes: 0 })
        assert.isUndefined(reset?.host)
        assert.lengthOf(yield* store.history(hold.key), 1)
        yield* store.forget(hold, { history: false })
        assert.isUndefined(yield* store.find(hold.key))
        assert.deepStrictEqual(yield* store.history(hold.key), [])
        assert.isUndefined(yield* store.claimKnown(hold))
      })
    )
  })
