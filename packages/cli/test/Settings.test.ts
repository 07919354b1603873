/**
 * What the environment says, and that the key is nowhere afterwards.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Settings from "@cogni/sandbox-cli/Settings"
import { Effect } from "effect"
import { inspect } from "node:util"

const key = "sk-planted-7f3c"

const read = (environment: Record<string, string>) =>
  Effect.provide(Settings.Settings, Settings.layer(environment))

describe("Settings", () => {
  it("the key leaves the environment at once", () => {
    const environment: Record<string, string | undefined> = {
      COGNI_LLM_KEY: key,
      PATH: "/bin",
      EMPTY: undefined
    }
    assert.deepStrictEqual(Settings.takeEnvironment(environment), { COGNI_LLM_KEY: key, PATH: "/bin" })
    assert.deepStrictEqual(environment, { PATH: "/bin", EMPTY: undefined })
  })

  it.effect("has a default for everything but the model", () =>
    Effect.gen(function* () {
      const settings = yield* read({ XDG_STATE_HOME: "/state" })
      assert.deepStrictEqual(settings, {
        stateDirectory: "/state/cogni-sandbox",
        dockerHost: undefined,
        runtimeImage: "cogni-sandbox/runtime:latest",
        proxyImage: "cogni-sandbox/proxy:latest",
        upstream: { _tag: "Absent" },
        model: undefined,
        billingAccountId: "local"
      })
    })
  )

  it.effect("takes what is set; an empty variable is not set", () =>
    Effect.gen(function* () {
      const settings = yield* read({
        COGNI_STATE_DIR: "/elsewhere",
        DOCKER_HOST: "unix:///run/other.sock",
        COGNI_RUNTIME_IMAGE: "r:1",
        COGNI_PROXY_IMAGE: "",
        COGNI_LLM_URL: "http://127.0.0.1:4000",
        COGNI_LLM_KEY: key,
        COGNI_LLM_MODEL: "m",
        COGNI_BILLING_ACCOUNT: "acct"
      })
      assert.strictEqual(settings.stateDirectory, "/elsewhere")
      assert.strictEqual(settings.dockerHost, "unix:///run/other.sock")
      assert.strictEqual(settings.runtimeImage, "r:1")
      assert.strictEqual(settings.proxyImage, "cogni-sandbox/proxy:latest")
      assert.strictEqual(settings.upstream._tag, "Configured")
      assert.strictEqual(settings.model, "m")
      assert.strictEqual(settings.billingAccountId, "acct")
    })
  )

  it.effect("half a configuration is known as such", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual((yield* read({ COGNI_LLM_URL: "http://x" })).upstream, {
        _tag: "Incomplete",
        missing: "COGNI_LLM_KEY"
      })
      assert.deepStrictEqual((yield* read({ COGNI_LLM_KEY: key })).upstream, {
        _tag: "Incomplete",
        missing: "COGNI_LLM_URL"
      })
      assert.deepStrictEqual((yield* read({ COGNI_LLM_URL: "", COGNI_LLM_KEY: "" })).upstream, {
        _tag: "Absent"
      })
    })
  )

  it.effect("the key is in nothing that can be printed", () =>
    Effect.gen(function* () {
      const settings = yield* read({ COGNI_LLM_URL: "http://127.0.0.1:4000", COGNI_LLM_KEY: key })
      assert.notInclude(
        `${JSON.stringify(settings)} ${inspect(settings, { depth: 9 })} ${String(settings.upstream)}`,
        key
      )
    })
  )
})
