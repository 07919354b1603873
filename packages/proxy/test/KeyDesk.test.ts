/** The desk that asks the source of an upstream's key, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { TestClock } from "effect/testing"
import type { KeyTold } from "../src/internal/gateway/UpstreamKeys.ts"
import * as KeyDesk from "../src/internal/shards/KeyDesk.ts"
import type { UpstreamKey as Key } from "../src/KeyInjection.ts"
import * as UpstreamKey from "../src/UpstreamKey.ts"

const limits = { keySecondsMax: 60, keyWaitSecondsMax: 10 }

/** Source that returns `key-1`, `key-2` and so on. */
const counting = (before: Effect.Effect<void> = Effect.void) => {
  const asked = { times: 0 }
  const source = Effect.suspend(() => {
    asked.times += 1
    return Effect.as(before, Redacted.make(`key-${asked.times}`))
  })
  return { asked, desk: KeyDesk.make(source, limits) }
}

const keyOf = (told: KeyTold) => (told._tag === "Key" ? told.key : told._tag)

const failing = (isRetryable: boolean) =>
  new UpstreamKey.KeyUnavailable({ detail: "the vault is sealed", remedy: "Unseal it", isRetryable })

const request = {
  method: "POST",
  authority: "a",
  target: "/",
  headers: [],
  bodySha256: "",
  bodyBytes: 0
} as const

describe("KeyDesk", () => {
  it.effect("asks again for a key that is older than its limit, and not before", () =>
    Effect.gen(function* () {
      const { asked, desk } = counting()
      assert.strictEqual(keyOf(yield* desk.answer({ type: "key" })), "key-1")
      yield* TestClock.adjust("59 seconds")
      const late = yield* desk.answer({ type: "key" })
      assert.deepInclude(late, { key: "key-1", version: 1, freshMillis: 1000 })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(keyOf(yield* desk.answer({ type: "key" })), "key-2")
      assert.strictEqual(asked.times, 2)
    })
  )

  it.effect("keeps the beginning of a long failure, which the audit of every call repeats", () =>
    Effect.gen(function* () {
      const page = "<html>".repeat(100_000)
      const failure = new UpstreamKey.KeyUnavailable({ detail: page, remedy: page, isRetryable: true })
      const renewed = KeyDesk.make(Effect.fail(failure), limits)
      const signed = KeyDesk.make({ sign: () => Effect.fail(failure) }, limits)
      for (const told of [
        yield* renewed.answer({ type: "key" }),
        yield* signed.answer({ type: "sign", request })
      ]) {
        assert.strictEqual(told._tag, "Unavailable")
        assert.isAtMost(JSON.stringify(told).length, 700)
        assert.include(JSON.stringify(told), "<html>")
      }
      const { message } = yield* Effect.flip(renewed.current)
      assert.isAtMost(message.length, 1200)
    })
  )

  it.effect("asks once for all who wait", () =>
    Effect.gen(function* () {
      const { asked, desk } = counting(Effect.sleep("1 second"))
      const waiting = yield* Effect.forkChild(
        Effect.all(
          Array.from({ length: 20 }, () => desk.answer({ type: "key" })),
          { concurrency: "unbounded" }
        )
      )
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual([...new Set((yield* Fiber.join(waiting)).map(keyOf))], ["key-1"])
      assert.strictEqual(asked.times, 1)
    })
  )

  it.effect("asks again for a refused key, at most every 5 seconds", () =>
    Effect.gen(function* () {
      const { asked, desk } = counting()
      yield* desk.answer({ type: "key" })
      for (let seconds = 0; seconds < 5; seconds++) {
        assert.strictEqual(keyOf(yield* desk.answer({ type: "key", refused: 1 })), "key-1")
        yield* TestClock.adjust("1 second")
      }
      assert.strictEqual(keyOf(yield* desk.answer({ type: "key", refused: 1 })), "key-2")
      // A thread that was refused the first key gets the second one without another question.
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(keyOf(yield* desk.answer({ type: "key", refused: 1 })), "key-2")
      assert.strictEqual(asked.times, 2)
    })
  )

  it.effect("answers a failure to all who wait, and asks again after a second", () =>
    Effect.gen(function* () {
      let times = 0
      const source = Effect.suspend((): Effect.Effect<Key, UpstreamKey.KeyUnavailable> => {
        times += 1
        return times === 1 ? Effect.fail(failing(true)) : Effect.succeed(Redacted.make("key-2"))
      })
      const desk = KeyDesk.make(source, limits)
      const unavailable = { _tag: "Unavailable", detail: "the vault is sealed", isRetryable: true } as const
      assert.deepStrictEqual(yield* desk.answer({ type: "key" }), unavailable)
      assert.deepStrictEqual(yield* desk.answer({ type: "key" }), unavailable)
      assert.strictEqual(times, 1)
      yield* TestClock.adjust("1 second")
      assert.strictEqual(keyOf(yield* desk.answer({ type: "key" })), "key-2")
    })
  )

  it.effect("bounds a source and a signer in time", () =>
    Effect.gen(function* () {
      for (const [source, ask] of [
        [Effect.never, { type: "key" }],
        [{ sign: () => Effect.never }, { type: "sign", request }]
      ] as const) {
        const fiber = yield* Effect.forkChild(KeyDesk.make(source, limits).answer(ask))
        yield* TestClock.adjust("10 seconds")
        assert.deepInclude(yield* Fiber.join(fiber), { _tag: "Unavailable", isRetryable: true })
      }
    })
  )

  it.effect("does not repeat the text of a defect", () =>
    Effect.gen(function* () {
      const desk = KeyDesk.make(Effect.die(new Error("sk-planted")), limits)
      const error = yield* Effect.flip(desk.current)
      assert.isFalse(error.isRetryable)
      assert.notInclude(
        `${error} ${JSON.stringify(error)} ${JSON.stringify(yield* desk.answer({ type: "key" }))}`,
        "sk-planted"
      )
    })
  )

  it.effect("answers at once if a signer throws or returns something else, without its text", () =>
    Effect.gen(function* () {
      const thrown = () => {
        throw new Error("sk-planted")
      }
      const untyped = (value: unknown) => (() => Effect.succeed(value)) as UpstreamKey.Signer["sign"]
      for (const sign of [thrown, untyped({ authorization: "sk-planted" }), untyped(undefined)]) {
        const told = yield* KeyDesk.make({ sign }, limits).answer({ type: "sign", request })
        assert.deepInclude(told, { _tag: "Unavailable", isRetryable: false })
        assert.notInclude(JSON.stringify(told), "sk-planted")
      }
    })
  )

  it.effect("has a fixed key for a value, and none for a signer", () =>
    Effect.gen(function* () {
      const fixed = KeyDesk.make(Redacted.make("key"), limits)
      assert.strictEqual(fixed.kind, "fixed")
      assert.isDefined(yield* fixed.current)
      const signer = KeyDesk.make({ sign: () => Effect.succeed({ a: Redacted.make("b") }) }, limits)
      assert.strictEqual(signer.kind, "signed")
      assert.isUndefined(yield* signer.current)
    })
  )
})
