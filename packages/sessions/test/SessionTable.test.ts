/** The session table under concurrent use: one value per key, one turn at a time, limits, and complete cleanup. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Schema, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as SessionTable from "../src/internal/SessionTable.ts"

/** Records the values that were held. */
interface Watch {
  readonly log: Array<string>
  readonly open: Map<string, number>
  openMax: number
}

const watch = (): Watch => ({ log: [], open: new Map(), openMax: 0 })

const hold = (seen: Watch, key: string, closeSeconds = 0) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      seen.log.push(`+${key}`)
      seen.open.set(key, (seen.open.get(key) ?? 0) + 1)
      seen.openMax = Math.max(
        seen.openMax,
        [...seen.open.values()].reduce((sum, one) => sum + one, 0)
      )
      return key
    }),
    () =>
      Effect.andThen(
        closeSeconds === 0 ? Effect.void : Effect.sleep(`${closeSeconds} seconds`),
        Effect.sync(() => {
          seen.log.push(`-${key}`)
          seen.open.set(key, seen.open.get(key)! - 1)
        })
      )
  )

const bounds = (
  sessionsMax: number,
  whenFull: "refuse" | "evict_idle" = "refuse",
  usersMax?: number
): SessionTable.Bounds => ({ sessionsMax, whenFull, usersMax })

type Table = SessionTable.SessionTable<string, string>

const makeTable = (given: Partial<SessionTable.TableOptions<string>> = {}) =>
  SessionTable.make<string, string>({ idleSeconds: Effect.succeed(900), ...given })

interface Ask {
  readonly seen: Watch
  readonly key: string
  readonly bounds: SessionTable.Bounds
  readonly fingerprint?: string
  readonly closeSeconds?: number
  readonly body?: Effect.Effect<unknown, string>
  readonly make?: Effect.Effect<string, string, Scope.Scope>
}

const recipeOf = ({ closeSeconds, fingerprint = "", key, make, seen }: Ask) => ({
  fingerprint,
  make: make ?? hold(seen, key, closeSeconds)
})

const said = Effect.mapError((error: string | SessionTable.SessionRefusal) =>
  typeof error === "string" ? error : error.refusal
)

/** Uses a session in turn, like messages of a chat. */
const use = (table: Table, ask: Ask): Effect.Effect<string, string> => {
  const stopped = Effect.andThen(table.stopping, Effect.fail("stopping"))
  return table.seat(ask.key, ask.bounds).pipe(
    Effect.flatMap(({ hold, turn }) =>
      Effect.scoped(Effect.tap(hold(recipeOf(ask)), ask.body ?? Effect.void)).pipe(
        Effect.raceFirst(stopped),
        turn.withPermit
      )
    ),
    Effect.scoped,
    said
  )
}

/** Uses a session together with others, like users of a sandbox. */
const share = (table: Table, ask: Ask): Effect.Effect<string, string, Scope.Scope> =>
  said(Effect.flatMap(table.seat(ask.key, ask.bounds), ({ hold }) => hold(recipeOf(ask))))

const shareOnce = (table: Table, ask: Ask) => Effect.scoped(share(table, ask))

/** A value whose creation takes the given time. */
const slowly = (seen: Watch, key: string, seconds: number) =>
  Effect.andThen(Effect.sleep(`${seconds} seconds`), hold(seen, key))

describe("a session", () => {
  it.effect("is created once and kept between uses", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      for (let at = 0; at < 3; at += 1) {
        assert.strictEqual(yield* use(table, { seen, key: "a", bounds: bounds(1) }), "a")
      }
      assert.deepStrictEqual(seen.log, ["+a"])
    })
  )

  it.effect("is closed after its idle time, and not before", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable({ idleSeconds: Effect.succeed(10) })
      yield* use(table, { seen, key: "a", bounds: bounds(2) })
      yield* TestClock.adjust("5 seconds")
      yield* use(table, { seen, key: "a", bounds: bounds(2) })
      yield* TestClock.adjust("9 seconds")
      assert.deepStrictEqual(seen.log, ["+a"])
      assert.deepStrictEqual(yield* table.list, [
        { key: "a", value: "a", startedMs: 0, users: 0, idleSeconds: 9 }
      ])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(seen.log, ["+a", "-a"])
      assert.deepStrictEqual(yield* table.list, [])
      yield* use(table, { seen, key: "a", bounds: bounds(2) })
      assert.deepStrictEqual(seen.log, ["+a", "-a", "+a"])
    })
  )

  it.effect("is not idle while it is in use", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable({ idleSeconds: Effect.succeed(1) })
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* share(table, { seen, key: "a", bounds: bounds(1) })
          yield* shareOnce(table, { seen, key: "a", bounds: bounds(1) })
          yield* TestClock.adjust("30 minutes")
          assert.deepStrictEqual(seen.log, ["+a"])
        })
      )
    })
  )

  it.effect("with another fingerprint is recreated after the old value is closed", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      yield* use(table, { seen, key: "a", bounds: bounds(1), fingerprint: "1", closeSeconds: 2 })
      const next = yield* Effect.forkChild(
        use(table, { seen, key: "a", bounds: bounds(1), fingerprint: "2" })
      )
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(seen.log, ["+a"])
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(next)
      assert.deepStrictEqual(seen.log, ["+a", "-a", "+a"])
    })
  )

  it.effect("with another fingerprint is shared while it is in use", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      yield* share(table, { seen, key: "a", bounds: bounds(1), fingerprint: "1" })
      yield* shareOnce(table, { seen, key: "a", bounds: bounds(1), fingerprint: "2" })
      assert.deepStrictEqual(seen.log, ["+a"])
    })
  )

  it.effect("that cannot be created fails all waiting users, is closed, and is retried for the next", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const ask = { seen, key: "a", bounds: bounds(1) }
      const make = Effect.andThen(slowly(seen, "a", 1), Effect.fail("no"))
      const asked = yield* Effect.forEach([1, 2], () =>
        Effect.forkChild(Effect.flip(shareOnce(table, { ...ask, make })))
      )
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* Effect.forEach(asked, Fiber.join), ["no", "no"])
      assert.deepStrictEqual(seen.log, ["+a", "-a"])
      assert.deepStrictEqual(yield* table.list, [])
      assert.strictEqual(yield* use(table, ask), "a")
    })
  )

  it.effect("outlives a user that fails or is interrupted", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const ask = { seen, key: "a", bounds: bounds(1) }
      assert.strictEqual(yield* Effect.flip(use(table, { ...ask, body: Effect.fail("no") })), "no")
      const gone = yield* Effect.forkChild(use(table, { ...ask, body: Effect.never }))
      yield* Effect.yieldNow
      yield* Fiber.interrupt(gone)
      assert.strictEqual(yield* use(table, ask), "a")
      assert.deepStrictEqual(seen.log, ["+a"])
    })
  )

  it.effect("is still created if one waiting user leaves, and is ended if all leave", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const ask = { seen, key: "a", bounds: bounds(1), make: slowly(seen, "a", 10) }
      const asked = yield* Effect.forEach([1, 2], () => Effect.forkChild(shareOnce(table, ask)))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.interrupt(asked[0]!)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* Fiber.join(asked[1]!), "a")
      yield* table.end("a")
      const alone = yield* Effect.forkChild(shareOnce(table, ask))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.interrupt(alone)
      assert.deepStrictEqual(yield* table.list, [])
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(seen.log, ["+a", "-a"])
    })
  )

  it.effect("that ends by itself frees its slot, and is recreated", () =>
    Effect.gen(function* () {
      const seen = watch()
      const over = yield* Deferred.make<void>()
      const table = yield* makeTable({ endOf: () => Deferred.await(over) })
      const ask = { seen, key: "a", bounds: bounds(1) }
      yield* share(table, ask)
      yield* Deferred.succeed(over, undefined)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(seen.log, ["+a", "-a"])
      assert.deepStrictEqual(yield* table.list, [])
      yield* shareOnce(table, { ...ask, key: "b" })
    }).pipe(Effect.scoped)
  )

  it.effect("is closed when its end settles, and recreated only then", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const ask = { seen, key: "a", bounds: bounds(5), closeSeconds: 5 }
      yield* share(table, ask)
      const ending = yield* Effect.forkChild(table.end("a"), { startImmediately: true })
      const next = yield* Effect.forkChild(shareOnce(table, ask), { startImmediately: true })
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(seen.log, ["+a"])
      assert.isUndefined(ending.pollUnsafe())
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(ending)
      yield* Fiber.join(next)
      assert.deepStrictEqual(seen.log, ["+a", "-a", "+a"])
      yield* table.end("nobody")
      const end = yield* Effect.forkChild(table.endAll)
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(end)
    }).pipe(Effect.scoped)
  )

  it.effect.each([0, 5])(
    "that is ended %i s after its request, during creation, fails its users without interruption",
    (seconds) =>
      Effect.gen(function* () {
        const seen = watch()
        const table = yield* makeTable()
        const ask = { seen, key: "a", bounds: bounds(1), make: slowly(seen, "a", 10) }
        const asked = yield* Effect.forEach([1, 2], () =>
          Effect.forkChild(Effect.flip(shareOnce(table, ask)), { startImmediately: true })
        )
        yield* TestClock.adjust(`${seconds} seconds`)
        yield* table.end("a")
        assert.deepStrictEqual(yield* Effect.forEach(asked, Fiber.join), ["ended", "ended"])
        assert.deepStrictEqual(seen.log, [])
      })
  )
})

describe("turns of one session", () => {
  it.effect("run one after the other, in order, up to the limit on users", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const said: Array<string> = []
      const ask = (name: string) =>
        use(table, {
          seen,
          key: "a",
          bounds: bounds(1, "refuse", 4),
          body: Effect.sync(() => said.push(`<${name}`)).pipe(
            Effect.andThen(Effect.sleep("1 second")),
            Effect.andThen(Effect.sync(() => said.push(`${name}>`)))
          )
        })
      const fibers = yield* Effect.forEach(["1", "2", "3", "4"], (name) =>
        Effect.forkChild(ask(name), { startImmediately: true })
      )
      assert.strictEqual(yield* Effect.flip(ask("5")), "busy")
      yield* TestClock.adjust("4 seconds")
      yield* Effect.forEach(fibers, (fiber) => Fiber.join(fiber))
      assert.strictEqual(said.join(""), "<11><22><33><44>")
    })
  )

  it.effect("are skipped if they are interrupted while they wait", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const gate = yield* Deferred.make<void>()
      const ask = { seen, key: "a", bounds: bounds(1) }
      const first = yield* Effect.forkChild(use(table, { ...ask, body: Deferred.await(gate) }), {
        startImmediately: true
      })
      const second = yield* Effect.forkChild(use(table, ask), { startImmediately: true })
      const third = yield* Effect.forkChild(use(table, ask), { startImmediately: true })
      yield* Fiber.interrupt(second)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(first)
      yield* Fiber.join(third)
      assert.deepStrictEqual(seen.log, ["+a"])
    })
  )

  it.effect("with a new fingerprint replace the value when they start", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const ask = { seen, key: "a", bounds: bounds(1), body: Effect.sleep("1 second") }
      const fibers = yield* Effect.forEach(["1", "2", "2"], (fingerprint) =>
        Effect.forkChild(use(table, { ...ask, fingerprint }), { startImmediately: true })
      )
      yield* TestClock.adjust("3 seconds")
      yield* Effect.forEach(fibers, Fiber.join)
      assert.deepStrictEqual(seen.log, ["+a", "-a", "+a"])
    })
  )
})

describe("a full table", () => {
  it.effect("refuses, or reuses the slot of the longest idle session once it is closed", () =>
    Effect.gen(function* () {
      const seen = watch()
      const scope = yield* Scope.make()
      const table = yield* makeTable().pipe(Scope.provide(scope))
      for (const key of ["a", "b"]) {
        yield* use(table, { seen, key, bounds: bounds(2), closeSeconds: 2 })
        yield* TestClock.adjust("1 second")
      }
      yield* use(table, { seen, key: "a", bounds: bounds(2) })
      assert.strictEqual(yield* Effect.flip(use(table, { seen, key: "c", bounds: bounds(2) })), "full")
      const third = yield* Effect.forkChild(use(table, { seen, key: "c", bounds: bounds(2, "evict_idle") }))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(seen.log, ["+a", "+b"])
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(third)
      assert.deepStrictEqual(seen.log, ["+a", "+b", "-b", "+c"])
      assert.strictEqual(seen.openMax, 2)
      const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(end)
    })
  )

  it.effect("refuses if all sessions are in use", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      yield* Effect.forkChild(use(table, { seen, key: "a", bounds: bounds(1), body: Effect.never }), {
        startImmediately: true
      })
      assert.strictEqual(
        yield* Effect.flip(use(table, { seen, key: "b", bounds: bounds(1, "evict_idle") })),
        "full"
      )
    })
  )

  it.effect("gives the slot of a closing session to one other only", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      yield* use(table, { seen, key: "a", bounds: bounds(1), closeSeconds: 3 })
      yield* Effect.forkChild(table.end("a"), { startImmediately: true })
      const ask = (key: string) => use(table, { seen, key, bounds: bounds(1) })
      const [second, third] = yield* Effect.forEach(["b", "c"], (key) =>
        Effect.forkChild(Effect.result(ask(key)), { startImmediately: true })
      )
      yield* TestClock.adjust("3 seconds")
      assert.strictEqual((yield* Fiber.join(second!))._tag, "Success")
      assert.strictEqual((yield* Fiber.join(third!))._tag, "Failure")
      assert.strictEqual(seen.openMax, 1)
    })
  )

  it.effect("gives a slot to another session if its heir has left", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      yield* use(table, { seen, key: "a", bounds: bounds(1), closeSeconds: 3 })
      const ask = (key: string) => use(table, { seen, key, bounds: bounds(1, "evict_idle") })
      const second = yield* Effect.forkChild(ask("b"), { startImmediately: true })
      yield* Fiber.interrupt(second)
      const third = yield* Effect.forkChild(ask("c"), { startImmediately: true })
      assert.strictEqual(yield* Effect.flip(ask("d")), "full")
      yield* TestClock.adjust("3 seconds")
      assert.strictEqual(yield* Fiber.join(third), "c")
      assert.strictEqual(seen.openMax, 1)
    })
  )

  it.effect("does not wait beyond closeSecondsMax for a session to close", () =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable({ closeSecondsMax: 5 })
      yield* use(table, { seen, key: "a", bounds: bounds(1), closeSeconds: 3600 })
      const next = yield* Effect.forkChild(use(table, { seen, key: "b", bounds: bounds(1, "evict_idle") }))
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* Fiber.join(next), "b")
    })
  )
})

describe("closing a table", () => {
  it.effect("closes all values, ends current turns, and refuses new users", () =>
    Effect.gen(function* () {
      const seen = watch()
      const scope = yield* Scope.make()
      const table = yield* makeTable().pipe(Scope.provide(scope))
      const ask = { seen, bounds: bounds(5) }
      yield* use(table, { ...ask, key: "idle" })
      const running = yield* Effect.forkChild(use(table, { ...ask, key: "a", body: Effect.never }), {
        startImmediately: true
      })
      const waiting = yield* Effect.forkChild(use(table, { ...ask, key: "a" }), { startImmediately: true })
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(yield* Effect.flip(Fiber.join(running)), "stopping")
      assert.strictEqual(yield* Effect.flip(Fiber.join(waiting)), "stopping")
      assert.strictEqual(yield* Effect.flip(use(table, { ...ask, key: "b" })), "stopping")
      assert.sameMembers(seen.log, ["+idle", "+a", "-idle", "-a"])
    })
  )

  it.effect("closes a value whose creation finishes too late", () =>
    Effect.gen(function* () {
      const seen = watch()
      const scope = yield* Scope.make()
      const table = yield* makeTable({ closeSecondsMax: 5 }).pipe(Scope.provide(scope))
      const slow = yield* Effect.forkChild(
        Effect.exit(
          use(table, {
            seen,
            key: "a",
            bounds: bounds(1),
            make: Effect.uninterruptible(slowly(seen, "a", 60))
          })
        ),
        { startImmediately: true }
      )
      yield* TestClock.adjust("1 second")
      const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(end)
      assert.deepStrictEqual(seen.log, [])
      yield* TestClock.adjust("1 minute")
      assert.isTrue(Exit.isFailure(yield* Fiber.join(slow)))
      assert.deepStrictEqual(seen.log, ["+a", "-a"])
    })
  )

  it.effect("takes a bounded time, whatever hangs", () =>
    Effect.gen(function* () {
      const seen = watch()
      const scope = yield* Scope.make()
      const table = yield* makeTable({ closeSecondsMax: 5 }).pipe(Scope.provide(scope))
      for (const key of ["a", "b", "c"])
        yield* use(table, { seen, key, bounds: bounds(9), closeSeconds: 3600 })
      // Neither the table nor the test waits for this user.
      yield* Effect.forkDetach(
        use(table, { seen, key: "d", bounds: bounds(9), body: Effect.uninterruptible(Effect.never) }),
        { startImmediately: true }
      )
      const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(end)
    })
  )
})

const Step = Schema.Struct({
  key: Schema.Literals(["a", "b", "c", "d", "e"]),
  /** Seconds before it arrives, seconds it takes, and seconds after which its sender leaves. */
  after: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 })),
  takes: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 4 })),
  leavesAfter: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 12 })),
  fingerprint: Schema.Literals(["1", "2"]),
  fails: Schema.Boolean
})

const Run = Schema.Struct({
  steps: Schema.Array(Step).check(Schema.isMaxLength(25)),
  sessionsMax: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 4 })),
  closeSeconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 })),
  whenFull: Schema.Literals(["refuse", "evict_idle"])
})

it.effect.prop(
  "in any sequence of uses, a key has one value and one turn at a time, limits hold, and all values are closed",
  [Run],
  ([{ closeSeconds, sessionsMax, steps, whenFull }]) =>
    Effect.gen(function* () {
      const seen = watch()
      const running = new Map<string, number>()
      const scope = yield* Scope.make()
      const table = yield* makeTable({ idleSeconds: Effect.succeed(4) }).pipe(Scope.provide(scope))
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      for (const { after, fails, fingerprint, key, leavesAfter, takes } of steps) {
        yield* TestClock.adjust(`${after} seconds`)
        const body = Effect.acquireUseRelease(
          Effect.sync(() => {
            running.set(key, (running.get(key) ?? 0) + 1)
            assert.strictEqual(running.get(key), 1)
            assert.strictEqual(seen.open.get(key), 1)
          }),
          () => Effect.andThen(Effect.sleep(`${takes} seconds`), fails ? Effect.fail("no") : Effect.void),
          () => Effect.sync(() => running.set(key, running.get(key)! - 1))
        )
        const ask: Ask = { seen, key, fingerprint, closeSeconds, body, bounds: bounds(sessionsMax, whenFull) }
        const asked = use(table, ask).pipe(Effect.timeoutOption(`${leavesAfter} seconds`), Effect.exit)
        fibers.push(yield* Effect.forkChild(asked, { startImmediately: true }))
        for (const count of seen.open.values()) assert.isAtMost(count, 1)
      }
      yield* TestClock.adjust("5 minutes")
      for (const fiber of fibers) {
        const exit = (yield* Fiber.join(fiber)) as Exit.Exit<unknown, string>
        // A failed assertion inside would be a defect.
        assert.isFalse(Exit.hasDies(exit), String(exit))
      }
      assert.isAtMost(seen.openMax, sessionsMax)
      assert.deepStrictEqual(yield* table.list, [])
      yield* Scope.close(scope, Exit.void)
      assert.isTrue([...seen.open.values()].every((count) => count === 0))
      assert.lengthOf(
        seen.log.filter((line) => line.startsWith("+")),
        seen.log.length / 2
      )
    }),
  { arbitrary: { runs: 400, seed: "session-table" } }
)

it.effect.prop(
  "in any sequence of shared uses, a key has one value, limits hold, and all values are closed",
  [
    Schema.Array(
      Schema.Struct({
        session: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 6 })),
        holdSeconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 })),
        ending: Schema.Literals(["let go", "end", "give up"])
      })
    ).check(Schema.isMaxLength(40)),
    Schema.Literals(["refuse", "evict_idle"])
  ],
  ([steps, whenFull]) =>
    Effect.gen(function* () {
      const seen = watch()
      const scope = yield* Scope.make()
      const table = yield* makeTable({ idleSeconds: Effect.succeed(4) }).pipe(Scope.provide(scope))
      const ask = (key: string) => ({
        seen,
        key,
        bounds: bounds(3, whenFull),
        make: Effect.andThen(slowly(seen, key, 1), key === "6" ? Effect.fail("no") : Effect.succeed(key))
      })
      const all = yield* Effect.forEach(steps.entries(), ([index, { ending, holdSeconds, session }]) => {
        const key = String(session)
        const shared = Effect.gen(function* () {
          assert.strictEqual(yield* share(table, ask(key)), key)
          yield* Effect.sleep(`${holdSeconds} seconds`)
          if (ending === "end") yield* table.end(key)
        }).pipe(Effect.scoped)
        const bounded = ending === "give up" ? Effect.timeoutOption(shared, holdSeconds * 500) : shared
        return Effect.forkChild(Effect.exit(Effect.delay(bounded, index * 333)))
      })
      yield* TestClock.adjust("2 minutes")
      for (const exit of yield* Effect.forEach(all, Fiber.join)) assert.isFalse(Exit.hasDies(exit))
      assert.isAtMost(seen.openMax, 3)
      assert.deepStrictEqual(yield* table.list, [])
      const again = yield* Effect.forkChild(shareOnce(table, ask("1")))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(again), "1")
      yield* Scope.close(scope, Exit.void)
      assert.isTrue([...seen.open.values()].every((count) => count === 0))
    }),
  { arbitrary: { runs: 150, seed: 62 } }
)

it.effect.prop(
  "concurrent first uses create one value",
  [
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })),
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 5 })),
    Schema.Boolean
  ],
  ([messages, keys, isShared]) =>
    Effect.gen(function* () {
      const seen = watch()
      const table = yield* makeTable()
      const asked = yield* Effect.forEach(
        Array.from({ length: messages }, (_, at) => `k${at % keys}`),
        (key) => (isShared ? shareOnce : use)(table, { seen, key, bounds: bounds(5) }),
        { concurrency: "unbounded" }
      )
      assert.lengthOf(asked, messages)
      assert.lengthOf(seen.log, Math.min(messages, keys))
    }),
  { arbitrary: { runs: 100, seed: "first-messages" } }
)
