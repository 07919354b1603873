import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Configuration from "../src/config/Configuration.ts"
import * as Sessions from "../src/Sessions.ts"

const read = (text: string) =>
  Configuration.parse(`agent_configs: { a: {} }\nrouting: { default_agent: a }\n${text}`, { file: "f.yaml" })

const identity = { billingAccountId: "account", attempt: 0 }

describe("settingsOf", () => {
  it.effect("allows the models of all tiers in a sandbox, in addition to the host's", () =>
    Effect.gen(function* () {
      const configuration = yield* read("models: { default: small, complex: large }")
      const { llm } = Sessions.settingsOf(configuration, {
        llm: { model: "mine", models: { nick: "name" }, identity }
      })
      assert.deepStrictEqual(llm, {
        model: "mine",
        models: { small: "small", large: "large", nick: "name" },
        identity
      })
    })
  )

  it.effect("adds no models to a sandbox without llm", () =>
    Effect.gen(function* () {
      const configuration = yield* read("models: { default: small }")
      assert.notProperty(Sessions.settingsOf(configuration), "llm")
    })
  )
})
