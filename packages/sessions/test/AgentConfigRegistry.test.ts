/** Agents by name: found, listed in order, never changed. */
import { assert, describe, it } from "@effect/vitest"
import * as AgentConfig from "../src/config/AgentConfig.ts"
import * as AgentConfigRegistry from "../src/config/AgentConfigRegistry.ts"
import { Option, Result } from "effect"

const agent = (name: string) => AgentConfig.make({ name })

const of = (...names: ReadonlyArray<string>) =>
  names.reduce(
    (registry, name) => Result.getOrThrow(AgentConfigRegistry.register(registry, agent(name))),
    AgentConfigRegistry.empty
  )

describe("a registry", () => {
  it("has what was registered, in that order", () => {
    const registry = of("b", "a", "c")
    assert.deepStrictEqual(
      registry.list.map(({ name }) => name),
      ["b", "a", "c"]
    )
    assert.deepStrictEqual(registry.get("a"), Option.some(agent("a")))
    assert.isTrue(Option.isNone(registry.get("d")))
  })

  it("has nothing that every object has", () => {
    for (const name of ["constructor", "toString", "__proto__", "get"]) {
      assert.isTrue(Option.isNone(of("a").get(name)), name)
    }
  })

  it("takes a name once", () => {
    const twice = AgentConfigRegistry.register(of("a"), agent("a"))
    assert(Result.isFailure(twice))
    assert.include(twice.failure.message, "there is an agent a already")
  })

  it("is not changed by what is registered after it, nor by whoever made an agent", () => {
    const before = of("a")
    const overrides = { allow: ["x"], deny: [] as Array<string> }
    const mine = { ...agent("b"), toolOverrides: overrides }
    const after = Result.getOrThrow(AgentConfigRegistry.register(before, mine))
    overrides.deny.push("shell.exec")
    overrides.allow.pop()
    assert.lengthOf(before.list, 1)
    assert.deepStrictEqual(Option.getOrThrow(after.get("b")).toolOverrides, { allow: ["x"], deny: [] })
    assert.throws(() => (after.list as Array<unknown>).push(agent("c")))
    assert.throws(() => ((after.list[0] as { sandbox: boolean }).sandbox = false))
  })

  it("is what a file says", () => {
    const registry = AgentConfigRegistry.loadFromConfig({
      coder: {
        system_prompt: "x",
        model_tier: "complex",
        tool_profile: "coding",
        tool_overrides: { allow: [], deny: ["shell.exec"] },
        sandbox: false
      }
    })
    assert.deepStrictEqual(registry.list, [
      {
        name: "coder",
        systemPrompt: "x",
        modelTier: "complex",
        toolProfile: "coding",
        toolOverrides: { allow: [], deny: ["shell.exec"] },
        sandbox: false
      }
    ])
  })
})
