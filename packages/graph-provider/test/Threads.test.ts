/** Turns of threads: what an agent receives, what is kept, and what is refused. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { pi } from "@cogni/sandbox-graph-provider/agents/Pi"
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import {
  ThreadFilesFailed,
  ThreadLost,
  ThreadsUnavailable
} from "@cogni/sandbox-graph-provider/threads/ThreadError"
import * as ThreadFiles from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import * as ThreadStore from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import * as Threads from "@cogni/sandbox-graph-provider/threads/Threads"
import type * as OpenTurn from "@cogni/sandbox-graph-provider/threads/OpenTurn"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as ThreadSweep from "../src/threads/ThreadSweep.ts"

const keys = Array.from({ length: 12 }, (_, at) => Thread.ThreadKey.make(at.toString(16).padStart(32, "0")))

/** Threads of one account, with different keys. */
const ThreadsOf = Schema.Array(
  Schema.Struct({
    days: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 60 })),
    bytes: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 })),
    host: Schema.Literals(["here", "elsewhere", "none"]),
    isBusy: Schema.Boolean
  })
).check(Schema.isMaxLength(keys.length))

const threadsOf = (parts: typeof ThreadsOf.Type): ReadonlyArray<Thread.Thread> =>
  parts.map(({ bytes, days, host, isBusy }, at) => ({
    key: keys[at]!,
    billingAccountId: "acct",
    threadId: String(at),
    createdAt: "2026-01-01T00:00:00.000Z",
    usedAt: new Date(Date.parse("2026-06-01T00:00:00.000Z") - days * 86_400_000).toISOString(),
    turns: 1,
    historyBytes: 1,
    workspaceBytes: host === "none" ? 0 : bytes,
    isBusy,
    ...(host === "none" ? {} : { host })
  }))

let runs = 0
const nextRunId = () => RunId.make(`run-threads${String(++runs).padStart(6, "0")}`)

const world = Effect.fnUntraced(function* (
  limits: Partial<Thread.ThreadLimits> = {},
  changed: (
    store: ThreadStore.ThreadStore["Service"]
  ) => Partial<ThreadStore.ThreadStore["Service"]> = () => ({}),
  how: {
    /** Another host of the same store. */
    readonly host?: string
    readonly store?: ThreadStore.ThreadStore["Service"]
    readonly options?: Threads.Options
    readonly disk?: (
      service: ThreadFiles.ThreadFiles["Service"]
    ) => Partial<ThreadFiles.ThreadFiles["Service"]>
  } = {}
) {
  const files = ThreadFiles.makeMemory(how.host)
  const memory =
    how.store ?? Context.get(yield* Layer.build(ThreadStore.layerMemory), ThreadStore.ThreadStore)
  const store = ThreadStore.ThreadStore.of({ ...memory, ...changed(memory) })
  const threads = yield* Threads.make({ ...Thread.defaultLimits, ...limits }, how.options).pipe(
    Effect.provideService(ThreadStore.ThreadStore, store),
    Effect.provideService(ThreadFiles.ThreadFiles, { ...files.service, ...how.disk?.(files.service) })
  )
  const open = (asked: string, more: Partial<OpenTurn.AskedTurn> = {}) =>
    threads.open({
      billingAccountId: "acct",
      threadId: "t",
      runId: nextRunId(),
      agent: codex,
      asked,
      ...more
    })
  /** A whole turn. Returns what its agent received. */
  const turn = (asked: string, more: Partial<OpenTurn.AskedTurn> = {}) =>
    Effect.scoped(
      Effect.gen(function* () {
        const opened = yield* open(asked, more)
        yield* opened.begin
        yield* opened.end(`answer to ${asked}`)
        return opened
      })
    )
  /** A turn whose agent fails. */
  const failing = (asked: string) => Effect.scoped(Effect.flatMap(open(asked), ({ begin }) => begin))
  const key = yield* Thread.keyOf({ billingAccountId: "acct", threadId: Thread.ThreadId.make("t") })
  return { failing, files, key, open, store, threads, turn }
})

const keyOf = (threadId: string) =>
  Thread.keyOf({ billingAccountId: "acct", threadId: Thread.ThreadId.make(threadId) })

const contents = ({ messages }: OpenTurn.OpenTurn) => messages.map(({ content }) => content)

describe("a turn", () => {
  it.effect(
    "continues the session of an agent that has its own, and sends it only what it does not know",
    () =>
      Effect.gen(function* () {
        const { key, store, turn } = yield* world()
        const first = yield* turn("one")
        assert.strictEqual(first.session?.isNew, true)
        assert.strictEqual(first.session?.directory, `/workspace/.cogni/sessions/${first.session?.id}`)
        const path = `/threads/${(yield* store.find(key))?.files}`
        assert.deepStrictEqual(first.workspace, { type: "directory", path, counts: "all" })
        const second = yield* turn("two")
        assert.deepStrictEqual(second.session, { ...first.session!, isNew: false })
        assert.deepStrictEqual(contents(second), ["two"])
        assert.deepStrictEqual(second.workspace, first.workspace)
      })
  )

  it.effect("replays the history as text to an agent without sessions, and to one that joins later", () =>
    Effect.gen(function* () {
      const { turn } = yield* world()
      yield* turn("one", { agent: minimal })
      const second = yield* turn("two", { agent: minimal })
      assert.isUndefined(second.session)
      assert.deepStrictEqual(contents(second), ["one", "answer to one", "two"])
      const joined = yield* turn("three", { agent: codex })
      assert.strictEqual(joined.session?.isNew, true)
      assert.deepStrictEqual(contents(joined), ["one", "answer to one", "two", "answer to two", "three"])
      yield* turn("four", { agent: pi })
      const back = yield* turn("five")
      assert.strictEqual(back.session?.id, joined.session?.id)
      assert.deepStrictEqual(contents(back), ["four", "answer to four", "five"])
    })
  )

  it.effect("has a session for each personality", () =>
    Effect.gen(function* () {
      const { turn } = yield* world()
      const one = yield* turn("one", { personality: "reviewer" })
      const two = yield* turn("two", { personality: "coder" })
      assert.notStrictEqual(one.session?.id, two.session?.id)
      assert.deepStrictEqual(contents(two), ["one", "answer to one", "two"])
    })
  )

  it.effect("begins a new session after a turn that failed, which is not part of the history", () =>
    Effect.gen(function* () {
      const { failing, key, threads, turn } = yield* world()
      const first = yield* turn("one")
      yield* failing("bad")
      const third = yield* turn("three")
      assert.strictEqual(third.session?.isNew, true)
      assert.notStrictEqual(third.session?.id, first.session?.id)
      assert.deepStrictEqual(contents(third), ["one", "answer to one", "three"])
      const { turns } = yield* threads.find(key)
      assert.deepStrictEqual(
        turns.map(({ asked }) => asked),
        ["one", "three"]
      )
    })
  )

  it.effect("is refused while another one runs, for as long as that takes", () =>
    Effect.gen(function* () {
      const { key, open, threads } = yield* world()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { begin } = yield* open("one")
          yield* begin
          for (let minutes = 0; minutes < 3; minutes++) {
            const busy = yield* Effect.flip(Effect.scoped(open("two")))
            assert.strictEqual(busy._tag, "ThreadBusy")
            assert.strictEqual(
              (yield* Effect.flip(threads.remove(key, { history: "keep" })))._tag,
              "ThreadBusy"
            )
            yield* TestClock.adjust("1 minute")
          }
        })
      )
      yield* Effect.scoped(open("two"))
    })
  )

  it.effect("ends when it can no longer hold its thread", () =>
    Effect.gen(function* () {
      for (const error of [new ThreadLost(), new ThreadsUnavailable({ detail: "is gone", remedy: "Wait" })]) {
        let isGone = false
        const { open } = yield* world({}, (store) => ({
          renew: (hold) => (isGone ? Effect.fail(error) : store.renew(hold))
        }))
        const { lost } = yield* open("one", { threadId: error._tag })
        const waiting = yield* Effect.forkChild(Effect.flip(lost), { startImmediately: true })
        yield* TestClock.adjust("1 minute")
        assert.isUndefined(waiting.pollUnsafe())
        isGone = true
        yield* TestClock.adjust("1 minute")
        assert.strictEqual((yield* Fiber.join(waiting))._tag, "ThreadLost")
      }
    })
  )

  it.effect("survives a database that is gone for some seconds", () =>
    Effect.gen(function* () {
      let answers = 0
      const { open } = yield* world({}, (store) => ({
        renew: (hold) =>
          ++answers % 4 === 1
            ? store.renew(hold)
            : Effect.fail(new ThreadsUnavailable({ detail: "is gone", remedy: "Wait" }))
      }))
      const { end, lost } = yield* open("one")
      const waiting = yield* Effect.forkChild(lost)
      yield* TestClock.adjust("5 minutes")
      assert.isUndefined(waiting.pollUnsafe())
      yield* end("still here")
    })
  )

  it.effect("is refused when the files are gone; the history stays, and a reset thread replays it", () =>
    Effect.gen(function* () {
      const { files, key, open, threads, turn } = yield* world()
      yield* turn("one")
      files.lose(key)
      const lost = yield* Effect.flip(Effect.scoped(open("two")))
      assert.deepInclude(lost, { _tag: "ThreadFilesLost", isHere: true })
      assert.include(lost.message, "or reset it")
      assert.lengthOf((yield* threads.find(key)).turns, 1)
      yield* threads.remove(key, { history: "keep" })
      const again = yield* turn("two")
      assert.strictEqual(again.session?.isNew, true)
      assert.deepStrictEqual(contents(again), ["one", "answer to one", "two"])
    })
  )

  it.effect("says so if another host has the files, and follows a host whose name has changed", () =>
    Effect.gen(function* () {
      const { files, key, open, store, threads, turn } = yield* world()
      yield* turn("one")
      const hold = { key, holder: "other host" }
      const renamed = Effect.gen(function* () {
        const { files: name } = (yield* store.claimKnown(hold))!
        yield* store.begin(hold, { agent: "codex", host: "elsewhere", files: name! })
        yield* store.release(hold)
      })
      yield* renamed
      assert.deepStrictEqual(contents(yield* turn("two")), ["one", "answer to one", "two"])
      yield* renamed
      files.lose(key)
      const lost = yield* Effect.flip(Effect.scoped(open("three")))
      assert.deepInclude(lost, { _tag: "ThreadFilesLost", host: "elsewhere", isHere: false })
      yield* threads.remove(key, { history: "remove" })
      assert.deepStrictEqual(yield* threads.list({}), [])
    })
  )

  it.effect("leads no hostile name out of the directory of its thread, or to another account's", () =>
    Effect.gen(function* () {
      const { open, threads, turn } = yield* world()
      const seen = new Set<string>()
      const names = [
        "../../etc",
        "/etc/passwd",
        ".",
        "a/b",
        "a\\b",
        "%2e%2e%2f",
        "\u202eabc",
        "x".repeat(200),
        '","'
      ]
      for (const billingAccountId of ["acct", "acct2", '","']) {
        for (const threadId of names) {
          const { workspace } = yield* turn("one", { billingAccountId, threadId })
          assert.strictEqual(workspace.type, "directory")
          if (workspace.type !== "directory") continue
          assert.match(workspace.path, /^\/threads\/[0-9a-f]{32}-[0-9a-f]{32}$/u)
          assert.isFalse(seen.has(workspace.path), `${billingAccountId} ${threadId}`)
          seen.add(workspace.path)
        }
      }
      for (const threadId of ["", "x".repeat(201), "a\u0000", "a\n", "\ud800"]) {
        const refused = yield* Effect.flip(Effect.scoped(open("one", { threadId })))
        assert.strictEqual(refused._tag, "ThreadUnsupported")
      }
      const [own] = yield* threads.list({ billingAccountId: "acct" })
      for (const other of [
        threads.find(own!.key, "acct2"),
        threads.remove(own!.key, { history: "remove", billingAccountId: "acct2" })
      ])
        assert.strictEqual((yield* Effect.flip(Effect.asVoid(other)))._tag, "ThreadNotFound")
    })
  )

  it.effect("is refused when the account has too many threads, or the thread too many turns", () =>
    Effect.gen(function* () {
      const { open, turn } = yield* world({ threadsPerAccountMax: 1 })
      yield* turn("one")
      const refused = yield* Effect.flip(Effect.scoped(open("two", { threadId: "u" })))
      assert.deepInclude(refused, { _tag: "ThreadLimitReached", limit: "threads", max: 1 })
      const full = yield* world({}, (store) => ({
        claim: (...args) =>
          Effect.map(store.claim(...args), (thread) => ({ ...thread, turns: Thread.turnsMax }))
      }))
      const tooLong = yield* Effect.flip(Effect.scoped(full.open("two")))
      assert.deepInclude(tooLong, { _tag: "ThreadLimitReached", limit: "turns" })
    })
  )

  it.effect("is refused by a full host to accounts that use their share of it, and only to those", () =>
    Effect.gen(function* () {
      const { files, open, store, threads, turn } = yield* world({ bytesPerHostMax: 3 * 1024 ** 3 })
      const thread = (billingAccountId: string, threadId = "t") => ({ billingAccountId, threadId })
      const refused = (billingAccountId: string) =>
        Effect.flip(Effect.scoped(open("?", thread(billingAccountId))))
      yield* Effect.scoped(
        Effect.gen(function* () {
          const opened = yield* open("one", thread("big"))
          yield* opened.begin
          const [{ key } = { key: undefined }] = yield* store.list({ billingAccountId: "big" })
          files.fill(key!, 2 * 1024 ** 3)
          yield* opened.end("done")
        })
      )
      yield* turn("one", thread("small"))
      // A turn that only opened, and then one that runs, count as a full disk.
      yield* Effect.scoped(
        Effect.gen(function* () {
          const opened = yield* open("two", thread("other"))
          for (const isBegun of [false, true]) {
            if (isBegun) yield* opened.begin
            const full = yield* refused("big")
            const bytesMax = (3 * 1024 ** 3) / (isBegun ? 4 : 3)
            assert.deepInclude(full, { _tag: "ThreadHostFull", limit: "share", bytesMax })
            yield* turn("three", thread("small"))
            yield* turn("three", thread("new"))
          }
          // Twice the limit is for no account.
          yield* open("four", thread("small"))
          const none = yield* refused("newest")
          assert.deepInclude(none, { _tag: "ThreadHostFull", limit: "host", bytesMax: 6 * 1024 ** 3 })
        })
      )
      const [{ key } = { key: undefined }] = yield* store.list({ billingAccountId: "big" })
      files.fill(key!, 3 * 1024 ** 3)
      yield* Effect.scoped(Effect.flatMap(open("five", thread("big")), ({ begin }) => begin))
      assert.deepInclude(yield* refused("big"), { limit: "share" })
      // Neither the history nor the thread of another account is touched, and the account can make room.
      assert.lengthOf((yield* threads.find(key!, "big")).turns, 1)
      yield* threads.remove(key!, { history: "keep" })
      yield* turn("seven", thread("big"))
      // Another host of the same database has room of its own.
      const there = yield* world({ bytesPerHostMax: 1 }, undefined, { host: "there", store })
      yield* there.turn("one", thread("small", "u"))
    })
  )

  it.effect("counts files that are not measured as full: of a killed host, and of no thread", () =>
    Effect.gen(function* () {
      const { files, key, open, store, threads, turn } = yield* world({ bytesPerHostMax: 1024 ** 3 })
      const killed = Effect.gen(function* () {
        const hold = { key, holder: crypto.randomUUID() }
        const { files: name } = (yield* store.claimKnown(hold))!
        yield* store.begin(hold, { agent: "codex", host: "here", files: name! })
        yield* store.release(hold)
      })
      const isFull = Effect.map(
        Effect.result(Effect.scoped(open("?", { threadId: "u" }))),
        (result) => result._tag === "Failure" && result.failure._tag === "ThreadHostFull"
      )
      yield* turn("one")
      assert.isFalse(yield* isFull)
      yield* killed
      assert.isTrue(yield* isFull)
      yield* threads.sweep()
      assert.isFalse(yield* isFull, "measured by a sweep")
      yield* killed
      files.fill(key, 1024 ** 3)
      const full = yield* Effect.flip(Effect.scoped(open("two")))
      assert.strictEqual(full._tag, "ThreadHostFull", "measured before the next turn of the thread")
      files.fill(key, 1)
      yield* turn("two")
      assert.isFalse(yield* isFull, "measured by that turn")

      const orphan = Thread.newFilesName(key, store.id)
      yield* files.service.acquire(orphan)
      assert.isTrue(yield* isFull)
      yield* threads.sweep()
      assert.isFalse(yield* isFull, "removed")

      // A sweep of this store leaves what another one has, so turns measure it.
      const foreign = Thread.newFilesName(key, Thread.newStoreId())
      yield* files.service.acquire(foreign)
      assert.isFalse(yield* isFull)
      files.fill(key, 2 * 1024 ** 3)
      assert.isFalse(yield* isFull, "until the next sweep")
      yield* threads.sweep()
      assert.isTrue(yield* isFull)
    })
  )

  it.effect("counts what a sweep could not remove by its size", () =>
    Effect.gen(function* () {
      const { files, key, open, store, threads } = yield* world({ bytesPerHostMax: 1024 ** 3 }, undefined, {
        disk: () => ({ remove: () => Effect.fail(new ThreadFilesFailed({ detail: "is read-only" })) })
      })
      yield* files.service.acquire(Thread.newFilesName(key, store.id))
      assert.strictEqual((yield* Effect.flip(Effect.scoped(open("?"))))._tag, "ThreadHostFull")
      assert.lengthOf((yield* threads.sweep()).failed, 1)
      yield* Effect.scoped(open("?"))
    })
  )

  it.effect("reserves at most a quarter of a host for one account, unless it is alone there", () =>
    Effect.gen(function* () {
      const { open, turn } = yield* world({ bytesPerHostMax: 64 * 1024 ** 3 })
      /** Opens as many turns of an account as the host allows, without a byte. */
      const opened = (billingAccountId: string) =>
        Effect.gen(function* () {
          for (let count = 0; ; count++) {
            const exit = yield* Effect.result(open("one", { billingAccountId, threadId: String(count) }))
            if (exit._tag === "Failure") return { count, refused: exit.failure }
          }
        })
      const alone = yield* Effect.scoped(
        Effect.tap(opened("first"), () => turn("one", { billingAccountId: "honest" }))
      )
      assert.strictEqual(alone.count, 32)
      assert.deepInclude(alone.refused, { _tag: "ThreadHostFull", limit: "share" })
      const { count, refused } = yield* Effect.scoped(
        Effect.tap(opened("first"), () => turn("two", { billingAccountId: "honest" }))
      )
      assert.strictEqual(count, 8)
      assert.deepInclude(refused, { _tag: "ThreadHostFull", limit: "running", bytesMax: 16 * 1024 ** 3 })
      assert.include(refused.message, "Wait until a turn of the account has ended")
    })
  )

  it.effect("is refused by a host that remembers nothing", () =>
    Effect.gen(function* () {
      const { open } = yield* Threads.Threads
      const asked = { billingAccountId: "a", threadId: "t", runId: nextRunId(), agent: codex, asked: "?" }
      assert.strictEqual((yield* Effect.flip(Effect.scoped(open(asked))))._tag, "ThreadUnsupported")
    })
  )
})

describe("messagesOf", () => {
  it("leaves out the oldest turns beyond the limit, and says how many", () => {
    const turns = ["a", "b", "c"].map((asked) => ({ asked, answered: asked.repeat(9) }))
    const messages = Thread.messagesOf(turns, "now", 20)
    assert.deepStrictEqual(
      messages.map(({ content, role }) => `${role}: ${content}`),
      [
        "system: 1 earlier turns of this conversation are left out here.",
        "user: b",
        "assistant: bbbbbbbbb",
        "user: c",
        "assistant: ccccccccc",
        "user: now"
      ]
    )
  })
})

const nothing = { expired: [], emptied: [], orphans: [], failed: [] }

describe("a sweep", () => {
  it.effect("removes threads that were unused for too long, with their history and files", () =>
    Effect.gen(function* () {
      const { files, key, threads, turn } = yield* world({ idleDaysMax: 2 })
      yield* turn("one")
      yield* TestClock.adjust("36 hours")
      yield* turn("new", { threadId: "new" })
      assert.deepStrictEqual(yield* threads.sweep(), nothing)
      yield* TestClock.adjust("24 hours")
      const planned = yield* threads.sweep({ dryRun: true })
      assert.deepStrictEqual(
        planned.expired.map((thread) => thread.key),
        [key]
      )
      assert.lengthOf(files.sizesOf(key), 1)
      yield* threads.sweep()
      assert.lengthOf(files.sizesOf(key), 0)
      assert.lengthOf(yield* threads.list({}), 1)
    })
  )

  it.effect("empties the threads longest unused of an account that has too many bytes, after each turn", () =>
    Effect.gen(function* () {
      const { files, key, open, threads, turn } = yield* world({ bytesPerAccountMax: 100 })
      const fill = (threadId: string, bytes: number) =>
        Effect.scoped(
          Effect.gen(function* () {
            const { begin, end } = yield* open("fill", { threadId })
            yield* begin
            files.fill(yield* keyOf(threadId), bytes)
            yield* end("filled")
          })
        )
      yield* fill("t", 60)
      yield* TestClock.adjust("1 second")
      yield* turn("other", { billingAccountId: "other" })
      yield* fill("u", 60)
      yield* TestClock.adjust("1 second")
      assert.lengthOf(files.sizesOf(key), 0)
      const { thread, turns } = yield* threads.find(key)
      assert.deepInclude(thread, { turns: 1, workspaceBytes: 0 })
      assert.lengthOf(turns, 1)
      assert.deepStrictEqual(contents(yield* turn("again")), ["fill", "filled", "again"])
    })
  )

  it.effect(
    "counts what a turn without an answer wrote, and a directory that cannot be measured as full",
    () =>
      Effect.gen(function* () {
        const { files, key, open, threads } = yield* world({ bytesPerAccountMax: 3 * 1024 ** 3 })
        const left = (how: () => void) =>
          Effect.scoped(Effect.flatMap(open("one"), ({ begin }) => Effect.map(begin, how)))
        const bytes = Effect.map(threads.find(key), ({ thread }) => thread.workspaceBytes)
        yield* left(() => files.fill(key, 60))
        assert.strictEqual(yield* bytes, 60)
        yield* left(() => files.break(key))
        assert.strictEqual(yield* bytes, 2 * 1024 ** 3)
      })
  )

  it.effect("reports a directory that cannot be removed, and goes on", () =>
    Effect.gen(function* () {
      const { files, key, threads, turn } = yield* world({ idleDaysMax: 1 })
      yield* turn("one")
      yield* turn("two", { threadId: "u" })
      files.break(key)
      yield* TestClock.adjust("2 days")
      const { expired, failed } = yield* threads.sweep()
      assert.lengthOf(expired, 1)
      assert.deepStrictEqual(
        failed.map((one) => one.key),
        [key]
      )
      assert.lengthOf(yield* threads.list({}), 1)
    })
  )

  it.effect.prop(
    "never takes a thread that is busy or files of another host, and always keeps the limits",
    { parts: ThreadsOf, max: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 6000 })) },
    ({ max, parts }) =>
      Effect.sync(() => {
        const threads = threadsOf(parts)
        const nowMillis = Date.parse("2026-06-01T00:00:00.000Z")
        const planned = ThreadSweep.plan(
          threads,
          { ...Thread.defaultLimits, bytesPerAccountMax: max },
          { host: "here", nowMillis }
        )
        const taken = [...planned.expired, ...planned.emptied]
        assert.isTrue(taken.every(({ isBusy }) => !isBusy))
        assert.isTrue(planned.emptied.every(({ host }) => host === "here"))
        assert.strictEqual(new Set(taken.map(({ key }) => key)).size, taken.length)
        const left = threads.filter((thread) => thread.host === "here" && !taken.includes(thread))
        const bytes = left.reduce((sum, { workspaceBytes }) => sum + workspaceBytes, 0)
        assert.isTrue(bytes <= max || left.every(({ isBusy }) => isBusy))
      })
  )
})

/** A disk on which removals wait until they are allowed to go on. */
const slowDisk = Effect.gen(function* () {
  const begun = yield* Deferred.make<void>()
  const go = yield* Deferred.make<void>()
  return {
    begun: Deferred.await(begun),
    go: Deferred.succeed(go, undefined),
    disk: ({ remove }: ThreadFiles.ThreadFiles["Service"]) => ({
      remove: (name: Thread.FilesName) =>
        Deferred.succeed(begun, undefined).pipe(
          Effect.andThen(Deferred.await(go)),
          Effect.andThen(remove(name))
        )
    })
  }
})

describe("files of a thread", () => {
  it.effect("are never those that a removal left when it was cut; the next sweep removes them", () =>
    Effect.gen(function* () {
      for (const history of ["keep", "remove"] as const) {
        const { begun, disk, go } = yield* slowDisk
        const { files, key, threads, turn } = yield* world({}, undefined, { disk })
        yield* turn("one")
        files.fill(key, 5)
        const removal = yield* Effect.forkChild(threads.remove(key, { history }))
        yield* begun
        yield* Fiber.interrupt(removal)
        assert.deepStrictEqual(files.sizesOf(key), [5])
        assert.isUndefined((yield* threads.find(key)).thread.files)
        const next = yield* turn("two")
        assert.strictEqual(next.session?.isNew, true)
        assert.deepStrictEqual(contents(next), ["one", "answer to one", "two"])
        assert.deepStrictEqual(files.sizesOf(key).toSorted(), [0, 5])
        yield* go
        assert.lengthOf((yield* threads.sweep({ dryRun: true })).orphans, 1)
        assert.deepStrictEqual(files.sizesOf(key).toSorted(), [0, 5])
        assert.lengthOf((yield* threads.sweep()).orphans, 1)
        assert.deepStrictEqual(files.sizesOf(key), [0])
      }
    })
  )

  it.effect("do not come back after a reset on another host, and are removed there by its own sweep", () =>
    Effect.gen(function* () {
      const here = yield* world()
      const there = yield* world({}, undefined, { host: "there", store: here.store })
      const { key } = here
      yield* here.turn("one")
      here.files.fill(key, 777)
      yield* there.threads.remove(key, { history: "keep" })
      yield* there.turn("two")
      const refused = yield* Effect.flip(Effect.scoped(here.open("three")))
      assert.deepInclude(refused, { _tag: "ThreadFilesLost", host: "there", isHere: false })
      yield* there.threads.remove(key, { history: "keep" })
      const back = yield* here.turn("three")
      assert.strictEqual(back.session?.isNew, true)
      assert.deepStrictEqual(here.files.sizesOf(key).toSorted(), [0, 777])
      assert.lengthOf((yield* here.threads.sweep()).orphans, 1)
      assert.deepStrictEqual(here.files.sizesOf(key), [0])
      yield* there.threads.remove(key, { history: "remove" })
      assert.lengthOf((yield* here.threads.sweep()).orphans, 1)
      assert.deepStrictEqual(here.files.sizesOf(key), [])
    })
  )

  it.effect("are left alone by a sweep that has another store, or while a turn begins", () =>
    Effect.gen(function* () {
      const { files, key, open, store, threads, turn } = yield* world()
      yield* turn("one")
      const stranger = yield* world({}, undefined, { disk: () => files.service })
      assert.deepStrictEqual(yield* stranger.threads.sweep(), nothing)
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* open("two", { threadId: "u" })
          yield* files.service.acquire(Thread.newFilesName(yield* keyOf("u"), store.id))
          assert.deepStrictEqual(yield* threads.sweep(), nothing)
        })
      )
      assert.lengthOf(files.sizesOf(key), 1)
      assert.lengthOf((yield* threads.sweep()).orphans, 1)
    })
  )

  it.effect("are not removed by a sweep if a turn used them after it was planned", () =>
    Effect.gen(function* () {
      const { begun, disk, go } = yield* slowDisk
      const { threads, turn } = yield* world({ idleDaysMax: 1 }, undefined, {
        disk,
        options: { sweepsAfterTurns: false }
      })
      for (const threadId of ["t", "u", "v"]) yield* turn("one", { threadId })
      yield* TestClock.adjust("2 days")
      const sweep = yield* Effect.forkChild(threads.sweep())
      yield* begun
      const used: Array<string> = []
      for (const threadId of ["t", "u", "v"])
        if (yield* Effect.isSuccess(turn("two", { threadId }))) used.push(threadId)
      assert.lengthOf(used, 2)
      yield* go
      const { expired, failed } = yield* Fiber.join(sweep)
      assert.deepStrictEqual([expired.length, failed], [1, []])
      assert.sameMembers(
        (yield* threads.list({})).map(({ threadId }) => String(threadId)),
        used
      )
    })
  )

  it.effect("are measured while the thread is held, and by a sweep if their host was killed", () =>
    Effect.gen(function* () {
      const measuring = yield* Deferred.make<void>()
      const { files, key, open, store, threads } = yield* world({}, undefined, {
        disk: ({ bytesOf }) => ({
          bytesOf: (name) =>
            Deferred.succeed(measuring, undefined).pipe(
              Effect.andThen(Effect.sleep("90 seconds")),
              Effect.andThen(bytesOf(name))
            )
        })
      })
      const cancelled = yield* Effect.forkChild(
        Effect.scoped(Effect.flatMap(open("one"), ({ begin }) => begin))
      )
      yield* Deferred.await(measuring)
      files.fill(key, 60)
      yield* TestClock.adjust("5 minutes")
      yield* Fiber.join(cancelled)
      assert.strictEqual((yield* threads.find(key)).thread.workspaceBytes, 60)

      const hold = { key, holder: "killed" }
      const { files: name } = (yield* store.claimKnown(hold))!
      yield* store.begin(hold, { agent: "codex", host: "here", files: name! })
      files.fill(key, 70)
      yield* TestClock.adjust("1 minute")
      const sweep = yield* Effect.forkChild(threads.sweep())
      yield* TestClock.adjust("5 minutes")
      yield* Fiber.join(sweep)
      const { isBusy, workspaceBytes } = (yield* threads.find(key)).thread
      assert.deepStrictEqual([isBusy, workspaceBytes], [false, 70])
    })
  )

  it.effect("are removed after the end of a turn of another thread, not in it", () =>
    Effect.gen(function* () {
      const { begun, disk, go } = yield* slowDisk
      const { files, key, open, turn } = yield* world({ bytesPerAccountMax: 100 }, undefined, { disk })
      const filled = (threadId: string) =>
        Effect.scoped(
          Effect.gen(function* () {
            const { begin, end } = yield* open("one", { threadId })
            yield* begin
            files.fill(yield* keyOf(threadId), 60)
            yield* end("done")
          })
        )
      yield* filled("t")
      yield* TestClock.adjust("1 second")
      yield* filled("u")
      yield* begun
      yield* turn("two", { threadId: "v" })
      assert.lengthOf(files.sizesOf(key), 1)
      yield* go
      yield* TestClock.adjust("1 second")
      assert.lengthOf(files.sizesOf(key), 0)
    })
  )

  it.effect("do not keep a thread of a host that is gone: its history expires on any host", () =>
    Effect.gen(function* () {
      const gone = yield* world({}, undefined, { host: "gone" })
      yield* gone.turn("one")
      const { threads } = yield* world({ idleDaysMax: 30 }, undefined, { store: gone.store })
      yield* TestClock.adjust("31 days")
      assert.lengthOf((yield* threads.sweep()).expired, 1)
      assert.deepStrictEqual(yield* threads.list({}), [])
    })
  )
})

describe("a hold", () => {
  it.effect("is given up before it ends, if the database is silent", () =>
    Effect.gen(function* () {
      let isSilent = false
      const first = yield* world({}, (store) => ({
        renew: (hold) =>
          isSilent
            ? Effect.uninterruptible(
                Effect.andThen(
                  Effect.sleep("10 seconds"),
                  Effect.fail(new ThreadsUnavailable({ detail: "is silent", remedy: "Wait" }))
                )
              )
            : store.renew(hold)
      }))
      const second = yield* world({}, undefined, { store: first.store })
      const { begin, lost } = yield* first.open("one")
      yield* begin
      const waiting = yield* Effect.forkChild(Effect.flip(lost), { startImmediately: true })
      yield* TestClock.adjust("15 seconds")
      isSilent = true
      let seconds = 0
      const isFree = Effect.isSuccess(Effect.scoped(second.open("two")))
      while (waiting.pollUnsafe() === undefined && !(yield* isFree) && seconds < 60) {
        yield* TestClock.adjust("1 second")
        seconds += 1
      }
      const told = waiting.pollUnsafe()
      isSilent = false
      yield* TestClock.adjust("11 seconds")
      assert.isDefined(told, `another turn could begin after ${seconds} s`)
      assert.isAtMost(seconds, 30)
    })
  )
})
