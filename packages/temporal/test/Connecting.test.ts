/** Which connections to Temporal are refused before anything is sent. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Ref } from "effect"
import { TestClock } from "effect/testing"
import { isLocal, keepKey, optionsOf } from "../src/internal/Connecting.ts"
import { defaults, TemporalFailed } from "../src/TemporalServer.ts"

const keyOf = (key: string) => Effect.succeed(Redacted.make(key))

describe("a connection to Temporal", () => {
  it.effect("is refused without TLS, unless its server is on this machine", () =>
    Effect.gen(function* () {
      for (const address of ["127.0.0.1:7233", "localhost:7233", "[::1]:7233", "127.9.9.9:1"])
        assert.deepStrictEqual(yield* optionsOf({ ...defaults, address }), { address, tls: false })
      for (const address of [
        "10.0.0.1:7233",
        "127.0.0.1.example.com:7233",
        "localhost.example.com:7233",
        "[::2]:1"
      ]) {
        const { message, reason } = yield* Effect.flip(optionsOf({ ...defaults, address }))
        assert.strictEqual(reason, "AddressInsecure")
        assert.include(message, "--temporal-insecure")
        assert.strictEqual((yield* optionsOf({ ...defaults, address, isInsecureAllowed: true })).tls, false)
        assert.deepStrictEqual((yield* optionsOf({ ...defaults, address, tls: {} })).tls, {})
      }
    })
  )

  it.effect("is refused if its address has another scheme, so that none hides a remote machine", () =>
    Effect.gen(function* () {
      for (const address of [
        "http://127.0.0.1",
        "dns:///x",
        "127.0.0.1@x:1",
        "ipv4:127.0.0.1,1.1.1.1:1",
        "foo",
        "127.0.0.1",
        ""
      ]) {
        assert.isUndefined(isLocal(address))
        assert.strictEqual((yield* Effect.flip(optionsOf({ ...defaults, address }))).reason, "AddressInvalid")
      }
    })
  )

  it.effect("is encrypted if it has an API key, and refuses a key that would be in an error of the SDK", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* optionsOf({ ...defaults, apiKey: keyOf("k-1") }), {
        address: defaults.address,
        tls: {},
        apiKey: "k-1"
      })
      for (const key of ["", "secret\nkey", "secret key", "sécret"]) {
        const { message, reason } = yield* Effect.flip(optionsOf({ ...defaults, apiKey: keyOf(key) }))
        assert.strictEqual(reason, "CredentialsInvalid")
        assert.notMatch(message, /secret|sécret/u)
      }
    })
  )

  it.effect("is refused if its certificates cannot be parsed, without their text", () =>
    Effect.gen(function* () {
      const text = new TextEncoder().encode(
        "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"
      )
      const tls = { client: { certificate: text, privateKey: Redacted.make(text) } }
      const { message, reason } = yield* Effect.flip(optionsOf({ ...defaults, tls }))
      assert.strictEqual(reason, "CredentialsInvalid")
      assert.notInclude(message, "secret")
    })
  )

  it.effect("is refused if the file of its authorities has no certificate, or one that is broken", () =>
    Effect.gen(function* () {
      const broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
      for (const text of ["", "garbage", broken]) {
        const tls = { authorities: new TextEncoder().encode(text) }
        const { reason } = yield* Effect.flip(optionsOf({ ...defaults, tls }))
        assert.strictEqual(reason, "CredentialsInvalid", text)
      }
    })
  )

  it.effect("uses a new API key within a minute, and keeps the old one while the new one is unreadable", () =>
    Effect.gen(function* () {
      const missing = new TemporalFailed({
        reason: "CredentialsInvalid",
        detail: "missing",
        remedy: "Write it"
      })
      const file = yield* Ref.make<string | undefined>("k-1")
      const apiKey = Effect.flatMap(Ref.get(file), (key) =>
        key === undefined ? Effect.fail(missing) : keyOf(key)
      )
      const used: Array<string> = []
      yield* keepKey({ ...defaults, apiKey }, "k-1", (key) => Effect.sync(() => void used.push(key)))
      yield* TestClock.adjust("1 minute")
      yield* Ref.set(file, undefined)
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(used, [])
      yield* Ref.set(file, "k-2")
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(used, ["k-2"])
    })
  )
})
