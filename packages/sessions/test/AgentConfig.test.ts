/** Valid names of agents, and valid entries for their tools. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as AgentConfig from "../src/config/AgentConfig.ts"

describe("an agent", () => {
  it.each(["", "A", "a:b", "1a", "a".repeat(65), "__proto__"])("is not named %j", (name) => {
    assert.isFalse(Schema.is(AgentConfig.AgentName)(name))
  })

  it.each(["a b", "a*b", "", "1a"])("has no tools %j", (entry) => {
    assert.isFalse(Schema.is(AgentConfig.ToolEntry)(entry))
  })

  it("can name tools, groups of tools, and all tools", () => {
    for (const entry of ["shell.exec", "process.*", "*", "mcp_x.do-it"]) {
      assert.isTrue(Schema.is(AgentConfig.ToolEntry)(entry), entry)
    }
  })
})
