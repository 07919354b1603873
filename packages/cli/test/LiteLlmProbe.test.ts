import { assert, describe, it } from "@effect/vitest"
import * as LiteLlmProbe from "../src/LiteLlmProbe.ts"

describe("doctor, for LiteLLM", () => {
  it("fails for a version that must not be used", () => {
    const { detail, fix, status } = LiteLlmProbe.findingOf({ version: "1.82.8", hasDatabase: true }, "off")
    assert.strictEqual(status, "fail")
    assert.include(detail, "attacker")
    assert.include(fix, "Update LiteLLM")
  })

  it("fails without a database only if runs get keys", () => {
    const found = { version: "1.106.2", hasDatabase: false }
    assert.strictEqual(LiteLlmProbe.findingOf(found, "required").status, "fail")
    assert.strictEqual(LiteLlmProbe.findingOf(found, "off").status, "ok")
  })

  it("names the settings that costs depend on", () => {
    const { detail } = LiteLlmProbe.findingOf({ version: "1.106.2", hasDatabase: true }, "required")
    assert.include(detail, "include_cost_in_streaming_usage")
    assert.include(detail, "proxy_batch_write_at")
  })

  it("warns if the version is unknown", () => {
    assert.strictEqual(LiteLlmProbe.findingOf({ hasDatabase: true }, "off").status, "warn")
  })
})
