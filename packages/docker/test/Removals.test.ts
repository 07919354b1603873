import { assert, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Deferred, Effect, Fiber, Scope, Exit } from "effect"
import { TestClock } from "effect/testing"
import * as Removals from "../src/internal/container/Removals.ts"

const runId = RunId.RunId.make("run-of-one")
const otherId = RunId.RunId.make("run-of-another")

it.effect("removes in the background, and waits for that at the end", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const { settled, start } = yield* Scope.provide(Removals.make(Effect.void), scope)
    const gate = yield* Deferred.make<void>()
    yield* start(runId, Deferred.await(gate))
    yield* settled(otherId)
    const asked = yield* Effect.forkChild(settled(runId), { startImmediately: true })
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    assert.isUndefined(asked.pollUnsafe())
    assert.isUndefined(closing.pollUnsafe())
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(asked)
    yield* Fiber.join(closing)
  })
)

it.effect("removes no more than its limit at the same time without a run that waits", () =>
  Effect.gen(function* () {
    const { start } = yield* Removals.make(Effect.void)
    const gate = yield* Deferred.make<void>()
    for (let number = 0; number < Removals.removalsMax; number++) {
      // Two of each run: those of one run count once.
      const one = RunId.RunId.make(`run-number-${number}`)
      yield* start(one, Deferred.await(gate))
      yield* start(one, Deferred.await(gate))
    }
    const waits = yield* Effect.forkChild(start(otherId, Deferred.await(gate)), { startImmediately: true })
    assert.isUndefined(waits.pollUnsafe())
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(waits)
    yield* start(runId, Effect.void)
  })
)

it.effect("does not fail if a removal fails, and waits for a limited time", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const { start } = yield* Scope.provide(Removals.make(Effect.void), scope)
    yield* start(runId, Effect.die("broken"))
    yield* start(runId, Effect.never)
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    yield* TestClock.adjust("29 seconds")
    assert.isUndefined(closing.pollUnsafe())
    yield* TestClock.adjust("2 seconds")
    yield* Fiber.join(closing)
  })
)

it.effect("is waited for at the end of a program that was interrupted", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>()
    const program = Effect.scoped(
      Effect.flatMap(Removals.make(Effect.void), ({ start }) =>
        Effect.andThen(start(runId, Deferred.await(gate)), Effect.never)
      )
    )
    const running = yield* Effect.forkChild(program, { startImmediately: true })
    const interrupting = yield* Effect.forkChild(Fiber.interrupt(running), { startImmediately: true })
    yield* TestClock.adjust("1 second")
    assert.isUndefined(interrupting.pollUnsafe())
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(interrupting)
  })
)

it.effect("waits for a quiet moment, unless something waits for it", () =>
  Effect.gen(function* () {
    let removed = 0
    const removal = Effect.sync(() => void (removed += 1))
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { settled, start } = yield* Removals.make(Effect.never)
        yield* start(runId, removal)
        yield* start(otherId, removal)
        yield* TestClock.adjust("1 second")
        assert.strictEqual(removed, 0)
        yield* settled(runId)
        assert.strictEqual(removed, 1)
      })
    )
    assert.strictEqual(removed, 2)
  })
)

it.effect("is done at once after the end of the runtime", () =>
  Effect.gen(function* () {
    const { start } = yield* Effect.scoped(Removals.make(Effect.never))
    let removed = 0
    yield* start(
      runId,
      Effect.sync(() => void (removed += 1))
    )
    assert.strictEqual(removed, 1)
  })
)
