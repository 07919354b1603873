/** An agent with the least of everything, unless more is said. */
import { assert, describe, it } from "@effect/vitest"
import * as AgentConfig from "../src/config/AgentConfig.ts"

describe("an agent", () => {
  it("of nothing but a name has the smallest profile, and a sandbox", () => {
    assert.deepStrictEqual(AgentConfig.make({ name: "a" }), {
      name: "a",
      modelTier: "default",
      toolProfile: "minimal",
      toolOverrides: { allow: [], deny: [] },
      sandbox: true
    })
  })

  it.each([
    { name: "" },
    { name: "A" },
    { name: "a:b" },
    { name: "1a" },
    { name: "a".repeat(65) },
    { name: "__proto__" },
    { name: "a", modelTier: "huge" as "fast" },
    { name: "a", toolProfile: "all" as "full" },
    { name: "a", toolOverrides: { allow: ["a b"], deny: [] } },
    { name: "a", toolOverrides: { allow: [], deny: ["a*b"] } }
  ])("is not %j", (agent) => {
    assert.throws(() => AgentConfig.make(agent))
  })

  it("may name tools, groups of them, and all", () => {
    const toolOverrides = { allow: ["shell.exec", "process.*", "*"], deny: ["mcp_x.do-it"] }
    assert.deepStrictEqual(AgentConfig.make({ name: "a", toolOverrides }).toolOverrides, toolOverrides)
  })
})
