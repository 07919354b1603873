import { assert, describe, it } from "@effect/vitest"
import * as LiteLlmVersion from "../src/LiteLlmVersion.ts"

describe("a version of LiteLLM", () => {
  it("is refused if it is compromised, has a way in, or bills wrongly", () => {
    for (const [version, says] of [
      ["1.82.7", "attacker"],
      ["1.82.8", "attacker"],
      ["1.81.16", "SQL"],
      ["1.83.6.dev1", "SQL"],
      ["v1.82.0", "SQL"],
      ["1.102.0", "twice"],
      ["1.102.3", "twice"],
      ["1.105.0", "wrongly"]
    ] as const)
      assert.include(LiteLlmVersion.problemOf(version)?.detail, says, version)
  })

  it("is accepted if nothing is known against it", () => {
    for (const version of [
      "1.81.15",
      "1.83.7",
      "1.101.6",
      "1.102.4",
      "1.105.1",
      "1.106.2",
      "2.0.0",
      "unknown",
      ""
    ])
      assert.isUndefined(LiteLlmVersion.problemOf(version), version)
  })
})
