/** Agents by name: found, and listed in order. */
import { assert, describe, it } from "@effect/vitest"
import * as AgentConfigRegistry from "../src/config/AgentConfigRegistry.ts"
import { Option } from "effect"
import { agentNamed } from "./Agents.ts"

const of = (...names: ReadonlyArray<string>) =>
  AgentConfigRegistry.make(names.map((name) => agentNamed(name)))

describe("a registry", () => {
  it("has the given agents in the given order", () => {
    const registry = of("b", "a", "c")
    assert.deepStrictEqual(
      registry.list.map(({ name }) => name),
      ["b", "a", "c"]
    )
    assert.deepStrictEqual(registry.get("a"), Option.some(agentNamed("a")))
    assert.isTrue(Option.isNone(registry.get("d")))
  })

  it("does not find members of Object", () => {
    for (const name of ["constructor", "toString", "__proto__", "get"]) {
      assert.isTrue(Option.isNone(of("a").get(name)), name)
    }
  })

  it("is loaded from a file", () => {
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
