/** Secrets at rest: what is stored, what opens it, and what does not. */
import { assert, describe, it } from "@effect/vitest"
import type { Connection } from "@cogni/sandbox-connections/Connection"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import { Context, Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { inspect } from "node:util"
import * as Cases from "./ConnectionCases.ts"

const secret = "planted-refresh-token-zażółć"

/** A line of a key file. */
const line = (fill: number, bytes = 32) => Buffer.alloc(bytes, fill).toString("base64")

const owner: Connection = {
  ...Cases.permitted.connections[0]!,
  means: { kind: "oauth", tokenUrl: "https://git.example.com/token", clientId: "client-1" },
  scope: { purposes: ["fetch"] }
}

const gone = new SecretBox.SealFailed({ detail: "is gone", remedy: "Write it", isRetryable: true })

const opened = (text: string) =>
  Effect.map(
    Layer.build(Layer.provide(SecretBox.layer, SecretBox.layerKeys(Effect.succeed(Redacted.make(text))))),
    (context) => Context.get(context, SecretBox.SecretBox)
  )

const boxOf = (...fills: ReadonlyArray<number>) => opened(fills.map((fill) => line(fill)).join("\n"))

const sealed = Effect.flatMap(boxOf(1), (box) => box.seal(owner, Redacted.make(secret)))

const refused = <R>(effect: Effect.Effect<unknown, SecretBox.SealFailed, R>) =>
  Effect.map(Effect.flip(effect), (error) => {
    for (const text of [error.message, JSON.stringify(error), inspect(error, { depth: 9 })]) {
      assert.notInclude(text, "planted")
    }
    return error.message
  })

describe("SecretBox", () => {
  it.effect("opens what it sealed, and stores no part of it", () =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      const first = yield* box.seal(owner, Redacted.make(secret))
      assert.strictEqual(Redacted.value(yield* box.open(owner, first)), secret)
      for (const encoding of ["utf8", "base64", "base64url", "hex"] as const) {
        assert.notInclude(first, Buffer.from(secret).toString(encoding).slice(0, 12))
      }
      assert.notStrictEqual(first, yield* box.seal(owner, Redacted.make(secret)), "each has its own data key")
    })
  )

  it.effect("opens secrets of an earlier key, and seals with the first one", () =>
    Effect.gen(function* () {
      const rotated = yield* boxOf(2, 1)
      assert.strictEqual(Redacted.value(yield* rotated.open(owner, yield* sealed)), secret)
      const onlyNew = yield* boxOf(2)
      const later = yield* rotated.seal(owner, Redacted.make(secret))
      assert.strictEqual(Redacted.value(yield* onlyNew.open(owner, later)), secret)
      assert.include(yield* refused(onlyNew.open(owner, yield* sealed)), "a key that this host does not have")
    })
  )

  it.effect("uses keys that were replaced meanwhile, and the last ones while they are being replaced", () =>
    Effect.gen(function* () {
      let lines = Effect.succeed(Redacted.make(line(1))) as Effect.Effect<
        Redacted.Redacted<string>,
        SecretBox.SealFailed
      >
      const context = yield* Layer.build(
        Layer.provide(SecretBox.layer, SecretBox.layerKeys(Effect.suspend(() => lines)))
      )
      const box = Context.get(context, SecretBox.SecretBox)
      const before = yield* box.seal(owner, Redacted.make(secret))
      lines = Effect.succeed(Redacted.make(`${line(2)}\n${line(1)}`))
      const after = yield* box.seal(owner, Redacted.make(secret))
      const onlyNew = yield* boxOf(2)
      assert.strictEqual(Redacted.value(yield* onlyNew.open(owner, after)), secret)
      assert.strictEqual(Redacted.value(yield* box.open(owner, before)), secret)
      for (const broken of [Effect.succeed(Redacted.make("planted")), Effect.fail(gone)]) {
        lines = broken
        const meanwhile = yield* box.seal(owner, Redacted.make(secret))
        assert.strictEqual(Redacted.value(yield* onlyNew.open(owner, meanwhile)), secret)
      }
    })
  )

  it.effect("does not wait for a slow key management service", () =>
    Effect.gen(function* () {
      const slow = Layer.succeed(SecretBox.KeyWrapper, {
        wrap: () => Effect.never,
        unwrap: () => Effect.never
      })
      const context = yield* Layer.build(Layer.provide(SecretBox.layer, slow))
      const box = Context.get(context, SecretBox.SecretBox)
      const text = yield* sealed
      for (const use of [box.seal(owner, Redacted.make(secret)), box.open(owner, text)]) {
        const waiting = yield* Effect.forkChild(Effect.flip<unknown, SecretBox.SealFailed, never>(use))
        yield* TestClock.adjust("10 seconds")
        const error = yield* Fiber.join(waiting)
        assert.isTrue(error.isRetryable)
        assert.include(error.message, "within 10 s")
      }
    })
  )

  it.effect.each(["", "planted \r", "planted\ntoken", "planted’", "p".repeat(20_000)])(
    "does not store a token that no header carries: %#",
    (token) =>
      Effect.gen(function* () {
        const box = yield* boxOf(1)
        const ofToken: Connection = { ...owner, means: { kind: "token" } }
        assert.include(yield* refused(box.seal(ofToken, Redacted.make(token))), "not a token")
      })
  )

  it.effect("seals the longest secret of OAuth", () =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      const longest = JSON.stringify(Array.from({ length: 3 }, () => '"'.repeat(16_384)))
      const text = yield* box.seal(owner, Redacted.make(longest))
      assert.strictEqual(Redacted.value(yield* box.open(owner, text)), longest)
    })
  )

  it.effect.each<Partial<Connection>>([
    { id: "connection-b" },
    { billingAccountId: "account-b" },
    { billingAccountId: null },
    { name: "other" },
    { server: "https://evil.example" },
    { username: "evil" },
    { means: { kind: "oauth", tokenUrl: "https://evil.example/token", clientId: "client-1" } },
    { means: { kind: "token" } },
    { scope: {} },
    { scope: { purposes: ["fetch", "push"] } },
    { lifetimeSecondsMax: 3599 },
    { expiresAt: new Date(0) },
    { createdAt: new Date(0) }
  ])("does not open a secret that was copied, or whose connection was changed: %j", (changed) =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      const text = yield* refused(box.open({ ...owner, ...changed }, yield* sealed))
      assert.include(text, "belongs to another connection, or its connection was changed")
    })
  )

  it.effect("opens a secret whatever the order of the fields of its connection", () =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      const same = { ...owner, means: Object.fromEntries(Object.entries(owner.means).toReversed()) }
      assert.strictEqual(Redacted.value(yield* box.open(same as Connection, yield* sealed)), secret)
    })
  )

  it.effect("does not open a secret of which one character was changed", () =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      const text = yield* sealed
      for (let at = 0; at < text.length; at += 7) {
        const changed = `${text.slice(0, at)}${text[at] === "A" ? "B" : "A"}${text.slice(at + 1)}`
        const opened = yield* Effect.option(box.open(owner, changed))
        // The last character of Base64 can have bits that no byte uses.
        if (opened._tag === "Some") assert.strictEqual(Redacted.value(opened.value), secret)
        else yield* refused(box.open(owner, changed))
      }
    })
  )

  it.effect.each(["", "{}", "null", '{"version":2}', "x".repeat(100_000)])("does not open %j", (text) =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      assert.include(yield* refused(box.open(owner, text)), "damaged")
    })
  )

  it.effect("seals and opens nothing without a key, and says how to configure one", () =>
    Effect.gen(function* () {
      const box = yield* SecretBox.SecretBox
      for (const text of [
        yield* refused(box.seal(owner, Redacted.make(secret))),
        yield* refused(box.open(owner, ""))
      ]) {
        assert.include(text, "SecretBox.layerKeys")
      }
    }).pipe(Effect.provide(SecretBox.layerNone))
  )

  it.effect("reads keys from lines, and refuses other texts without repeating them", () =>
    Effect.gen(function* () {
      const box = yield* opened(`${line(1)}\n\n ${line(2)} \r\n`)
      assert.strictEqual(Redacted.value(yield* box.open(owner, yield* sealed)), secret)
      for (const text of [
        "",
        "planted",
        `${line(1)}\nplanted`,
        Buffer.from("planted").toString("base64"),
        line(1, 31),
        Array.from({ length: 17 }, (_, fill) => line(fill)).join("\n")
      ]) {
        assert.include(yield* refused(opened(text)), "openssl rand")
      }
    })
  )
})
