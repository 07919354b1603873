/** Settings of keys for runs, and the upstreams and proxies that cannot have them. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import * as RunKeyComposition from "../src/RunKeyComposition.ts"
import * as RunKeySettings from "../src/RunKeySettings.ts"
import * as Settings from "../src/Settings.ts"

const read = (environment: Record<string, string>) =>
  Effect.provide(Settings.Settings, Layer.provide(Settings.layer(environment), NodeServices.layer))

const required = { mode: "required", deployment: "test" } as const
const key = Redacted.make("sk-test")

describe("keys for runs", () => {
  it.effect("are off unless they are set, and named after the host", () =>
    Effect.gen(function* () {
      const unset = yield* read({})
      assert.strictEqual(unset.runKeys.mode, "off")
      assert.match(unset.runKeys.deployment, /^[a-z0-9][a-z0-9-]{0,39}$/u)
      const set = yield* read({ COGNI_RUN_KEYS: "required", COGNI_DEPLOYMENT: "team-a" })
      assert.deepStrictEqual(set.runKeys, { mode: "required", deployment: "team-a" })
    })
  )

  it.effect("have one of three modes", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(read({ COGNI_RUN_KEYS: "on" }))
      assert.include(String(error), "COGNI_RUN_KEYS")
    })
  )

  it("get a name from any host name", () => {
    for (const [host, name] of [
      ["build-7", "build-7"],
      ["Team.Example.COM", "team-example-com"],
      ["--x", "x"],
      ["", "local"],
      ["日本", "local"],
      ["a".repeat(64), "a".repeat(40)]
    ] as const)
      assert.strictEqual(RunKeySettings.nameOf(host), name)
  })

  it("are refused with nginx, with what to do", () => {
    assert.include(RunKeyComposition.refusal(required)?.message, "--proxy gateway")
    assert.isUndefined(RunKeyComposition.refusal({ ...required, mode: "off" }))
  })

  it.effect("are created through an HTTP proxy, and refused for another API than LiteLLM", () =>
    Effect.gen(function* () {
      const make = (url: string, options: RunKeyComposition.Input["options"] = { profile: {} }) =>
        Effect.scoped(RunKeyComposition.make({ settings: required, url, key, options }))
      const behind = (proxy: string) =>
        make("https://litellm.example.com", { profile: {}, egressProxy: { url: Redacted.make(proxy) } })
      assert.isDefined(yield* behind("http://proxy.example.com:3128"))
      assert.include((yield* Effect.flip(behind("socks5://proxy"))).message, "neither http nor https")
      const openai = yield* Effect.flip(make("https://api.openai.com/v1"))
      assert.include(openai.message, "only LiteLLM issues keys")
      const off = yield* Effect.scoped(
        RunKeyComposition.make({
          settings: { ...required, mode: "off" },
          url: "https://api.openai.com/v1",
          key,
          options: { profile: {} }
        })
      )
      assert.isUndefined(off)
    })
  )

  it.effect("fall back to the configured key only if they are preferred", () =>
    Effect.gen(function* () {
      const fallbackOf = (mode: "required" | "preferred") =>
        Effect.map(
          Effect.scoped(
            RunKeyComposition.make({
              settings: { ...required, mode },
              url: "http://127.0.0.1:9",
              key,
              options: { profile: {} }
            })
          ),
          (made) => made?.fallback
        )
      assert.strictEqual(yield* fallbackOf("required"), "none")
      assert.strictEqual(yield* fallbackOf("preferred"), "masterKey")
    })
  )
})
