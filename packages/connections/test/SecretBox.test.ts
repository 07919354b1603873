/** Secrets at rest: what is stored, what opens it, and what does not. */
import { assert, describe, it } from "@effect/vitest"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import { Context, Effect, Layer, Redacted } from "effect"
import { inspect } from "node:util"

const secret = "planted-refresh-token-zażółć"

const keyOf = (fill: number) => Redacted.make(new Uint8Array(SecretBox.keyBytes).fill(fill))

const owner = { billingAccountId: "account-a", id: "connection-a" }

const boxOf = (...fills: ReadonlyArray<number>) =>
  Effect.map(Layer.build(Layer.provide(SecretBox.layer, SecretBox.layerKeys(fills.map(keyOf)))), (context) =>
    Context.get(context, SecretBox.SecretBox)
  )

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

  it.effect("does not open a secret that was copied to another connection or account", () =>
    Effect.gen(function* () {
      const box = yield* boxOf(1)
      for (const other of [
        { ...owner, id: "connection-b" },
        { ...owner, billingAccountId: "account-b" }
      ]) {
        assert.include(yield* refused(box.open(other, yield* sealed)), "belongs to another connection")
      }
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
      const line = (fill: number) => Buffer.alloc(SecretBox.keyBytes, fill).toString("base64")
      const keys = yield* SecretBox.keysOf(Redacted.make(`${line(1)}\n\n ${line(2)} \r\n`))
      assert.deepStrictEqual(
        keys.map((key) => Redacted.value(key)[0]),
        [1, 2]
      )
      for (const text of ["planted", `${line(1)}\nplanted`, Buffer.from("planted").toString("base64")]) {
        assert.include(yield* refused(SecretBox.keysOf(Redacted.make(text))), "openssl rand")
      }
      for (const count of [0, 17]) {
        const all = Array.from({ length: count }, (_, fill) => keyOf(fill))
        yield* refused(Effect.asVoid(Layer.build(SecretBox.layerKeys(all))))
      }
    })
  )
})
