import { assert, it } from "@effect/vitest"
import * as PoolPolicy from "@cogni/sandbox-core/PoolPolicy"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as NetworkHolder from "../src/internal/container/NetworkHolder.ts"
import * as ReadyNetworks from "../src/internal/container/ReadyNetworks.ts"

const broken = new ContainerFailed({ operation: "start", detail: "planted", remedy: "none" })

/** Networks over holders that exist only here. */
const world = Effect.fnUntraced(function* (
  options: {
    readonly quiet?: Effect.Effect<void>
    readonly fails?: () => false | ContainerFailed
    readonly isElsewhere?: boolean
  } = {}
) {
  const living = new Map<string, { usable: boolean }>()
  const images = { current: "sha256:one" }
  let number = 0
  let started = 0
  const { keep, noteFailure, take } = ReadyNetworks.make({
    imageId: () => Effect.sync(() => images.current),
    quiet: options.quiet ?? Effect.void,
    sharesHost: Effect.succeed(options.isElsewhere !== true),
    start: () =>
      Effect.gen(function* () {
        started += 1
        const failure = options.fails?.() ?? false
        if (failure !== false) return yield* failure
        const id = `holder-${++number}`
        const state = { usable: true }
        yield* Effect.acquireRelease(
          Effect.sync(() => living.set(id, state)),
          () => Effect.sync(() => living.delete(id))
        )
        return {
          id,
          imageId: images.current,
          isNetless: true,
          whyUnusable: () => (state.usable ? undefined : "planted"),
          mismatches: () => []
        }
      })
  })
  const report = yield* keep({
    limits: PoolPolicy.defaults,
    networksMax: 3,
    memoryAvailableBytes: Effect.undefined
  })
  return { images, living, noteFailure, report, startsSoFar: () => started, take }
})

const settled = TestClock.adjust("10 seconds")

it.effect("gives each ready network to one run, and makes as many ready as are asked for at once", () =>
  Effect.gen(function* () {
    const { living, report, take } = yield* world()
    yield* settled
    assert.strictEqual(living.size, 0, "before any run")
    assert.isUndefined(yield* take("image"))
    assert.isUndefined(yield* take("image"))
    yield* settled
    assert.deepStrictEqual(yield* report, { hits: 0, misses: 2, failure: undefined, ready: 2 })
    assert.isUndefined(yield* take("another image"))
    const [one, other] = [yield* take("image"), yield* take("image")]
    assert.notStrictEqual(one?.holder.id, other?.holder.id)
    yield* settled
    // Two for the first image, one for the other: no more than three.
    assert.strictEqual((yield* report).ready, 3)
    assert.strictEqual(living.size, 5, "those of the runs are the runs'")
    yield* one!.remove
    assert.strictEqual(living.size, 4)
  })
)

it.effect("removes all that no run has at the end", () =>
  Effect.gen(function* () {
    const living = yield* Effect.scoped(
      Effect.gen(function* () {
        const { living, take } = yield* world()
        yield* take("image")
        yield* settled
        assert.strictEqual(living.size, 1)
        return living
      })
    )
    assert.strictEqual(living.size, 0)
  })
)

it.effect("gives no run a network that cannot be used, and removes it, also if its image was replaced", () =>
  Effect.gen(function* () {
    const { images, living, take } = yield* world()
    yield* take("image")
    yield* settled
    const [first] = living.keys()
    living.get(first!)!.usable = false
    assert.isUndefined(yield* take("image"))
    yield* settled
    assert.isFalse(living.has(first!))
    const [second] = living.keys()
    images.current = "sha256:two"
    yield* settled
    assert.isFalse(living.has(second!))
    assert.isDefined(yield* take("image"))
  })
)

it.effect("makes none ready while runs start", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>()
    const { living, take } = yield* world({ quiet: Deferred.await(gate) })
    yield* take("image")
    yield* settled
    assert.strictEqual(living.size, 0)
    yield* Deferred.succeed(gate, undefined)
    yield* settled
    assert.strictEqual(living.size, 1)
  })
)

it.effect("says why none can be made ready, and tries again later", () =>
  Effect.gen(function* () {
    let fails: false | ContainerFailed = broken
    const { report, take } = yield* world({ fails: () => fails })
    yield* take("image")
    yield* TestClock.adjust("1 second")
    assert.include((yield* report).failure, "planted")
    fails = false
    yield* settled
    assert.deepStrictEqual(yield* report, { hits: 0, misses: 1, failure: undefined, ready: 1 })
  })
)

it.effect("tries no more if this process cannot use them, or the engine is on another host", () =>
  Effect.gen(function* () {
    const denied = yield* world({ fails: () => NetworkHolder.unreadable })
    yield* denied.take("image")
    yield* TestClock.adjust("10 minutes")
    assert.strictEqual(denied.startsSoFar(), 1)
    assert.include((yield* denied.report).failure, "may not read")
    const elsewhere = yield* world({ isElsewhere: true })
    yield* elsewhere.take("image")
    yield* TestClock.adjust("10 minutes")
    assert.strictEqual(elsewhere.startsSoFar(), 0)
    assert.include((yield* elsewhere.report).failure, "another host")
  })
)

it.effect("counts a network that could not be used as a miss", () =>
  Effect.gen(function* () {
    const { noteFailure, report, take } = yield* world()
    yield* take("image")
    yield* settled
    yield* take("image")
    yield* noteFailure
    const { hits, misses } = yield* report
    assert.deepStrictEqual([hits, misses], [0, 2])
  })
)
