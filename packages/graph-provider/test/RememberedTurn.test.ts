/** Graph runs that ask to be remembered: what is refused, what is recorded, one turn at a time. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import { ThreadLost } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import * as ThreadFiles from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import * as ThreadStore from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import * as Threads from "@cogni/sandbox-graph-provider/threads/Threads"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { context, envelope, request, told, world } from "./GraphWorld.ts"

const remembering = (program: Program) =>
  world({ program }).pipe(
    Layer.provideMerge(
      Threads.layer().pipe(Layer.provide(Layer.merge(ThreadStore.layerMemory, ThreadFiles.layerMemory)))
    )
  )

const asked = (content = "Where?") => request({ remember: true, messages: [{ role: "user", content }] })

let runs = 0
const inThread = () => ({
  ...context,
  runId: RunId.make(`run-remember${String(++runs).padStart(6, "0")}`),
  threadId: "t"
})

const answers: Program = (io) => Effect.as(io.stdout(envelope("Lima")), 0)

const turns = Effect.gen(function* () {
  const threads = yield* Threads.Threads
  const [thread] = yield* threads.list({ billingAccountId: "acct" })
  return thread === undefined ? [] : (yield* threads.find(thread.key)).turns
})

const check = (over: Parameters<typeof request>[0], threadId?: string) =>
  SandboxGraphProvider.SandboxGraphProvider.use((provider) =>
    Effect.flip(
      provider.check(
        request({ remember: true, ...over }),
        threadId === undefined ? context : { ...context, threadId }
      )
    )
  )

describe("a remembered run", () => {
  it.effect("records its answer, and runs in the directory of its thread with a memory of its own", () =>
    Effect.gen(function* () {
      const as = inThread()
      const { final } = yield* told(asked(), as)
      assert.isTrue(final.ok)
      const [turn] = yield* turns
      assert.deepInclude(turn, { runId: as.runId, agent: "agent", asked: "Where?", answered: "Lima" })
    }).pipe(Effect.provide(remembering(answers)))
  )

  it.effect("is refused without a thread, with more than the new message, and with a repository", () =>
    Effect.gen(function* () {
      const message = { role: "user", content: "?" } as const
      for (const [over, threadId] of [
        [{}, undefined],
        [{ messages: [message, { role: "assistant", content: "!" }, message] }, "t"],
        [{ messages: [{ role: "system", content: "?" }] }, "t"],
        [{ graphId: "sandbox:worker", repository: { url: "https://github.com/acme/app" } }, "t"],
        [{}, "a\nb"]
      ] as const) {
        const refused = yield* check(over, threadId)
        assert.deepInclude(refused, { error: "invalid_request", reason: "ThreadUnsupported" })
      }
      assert.deepStrictEqual(yield* turns, [])
    }).pipe(Effect.provide(remembering(answers)))
  )

  it.effect("is refused on a host that remembers nothing", () =>
    Effect.gen(function* () {
      assert.deepInclude(yield* check({}, "t"), { error: "invalid_request", reason: "ThreadUnsupported" })
    }).pipe(Effect.provide(world({ program: answers })))
  )

  it.effect("is not recorded if its agent fails", () =>
    Effect.gen(function* () {
      const { final } = yield* told(asked(), inThread())
      assert.isFalse(final.ok)
      assert.deepStrictEqual(yield* turns, [])
    }).pipe(Effect.provide(remembering((io) => Effect.as(io.stdout(envelope("Lima")), 1))))
  )

  it.effect("has its thread alone: a second one is refused with the time after which it may come again", () =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      const program: Program = (io) =>
        Deferred.succeed(started, undefined).pipe(
          Effect.andThen(Deferred.await(go)),
          Effect.andThen(io.stdout(envelope("Lima"))),
          Effect.as(0)
        )
      yield* Effect.gen(function* () {
        const first = yield* Effect.forkChild(told(asked(), inThread()))
        yield* Deferred.await(started)
        const busy = yield* check({}, "t")
        assert.deepInclude(busy, { error: "rate_limit", reason: "ThreadBusy" })
        assert.isAtLeast(busy.retrySeconds ?? 0, 1)
        const { final } = yield* told(asked(), inThread())
        assert.deepInclude(final, { ok: false, error: "rate_limit", reason: "ThreadBusy" })
        yield* Deferred.succeed(go, undefined)
        assert.isTrue((yield* Fiber.join(first)).final.ok)
        assert.lengthOf(yield* turns, 1)
      }).pipe(Effect.provide(remembering(program)))
    })
  )

  it.effect("keeps its text, and says that it was not recorded, if the thread is lost", () =>
    Effect.gen(function* () {
      const lost = ThreadStore.ThreadStore.pipe(
        Effect.map((store) => ({
          ...store,
          end: () =>
            Effect.flatMap(store.history(Thread.ThreadKey.make("0".repeat(32))), () =>
              Effect.fail(new ThreadLost())
            )
        }))
      )
      const threads = Threads.layer().pipe(
        Layer.provide(ThreadFiles.layerMemory),
        Layer.provide(
          Layer.effect(ThreadStore.ThreadStore, lost).pipe(Layer.provide(ThreadStore.layerMemory))
        )
      )
      const { final } = yield* told(asked(), inThread()).pipe(
        Effect.provide(world({ program: answers }).pipe(Layer.provideMerge(threads)))
      )
      assert.deepInclude(final, { ok: false, error: "internal", reason: "ThreadLost", content: "Lima" })
    })
  )
})
