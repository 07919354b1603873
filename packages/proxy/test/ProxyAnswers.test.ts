import { assert, describe, it } from "@effect/vitest"
import * as ProxyAnswers from "../src/internal/policy/ProxyAnswers.ts"

describe("ProxyAnswers", () => {
  it("hides headers that reveal the upstream, its keys or its costs, each name once", () => {
    for (const name of [
      "x-litellm-call-id",
      "x-litellm-model-api-base",
      "x-litellm-key-spend",
      "x-litellm-response-cost",
      "set-cookie"
    ]) {
      assert.include(ProxyAnswers.hiddenHeaders, name)
    }
    assert.strictEqual(new Set(ProxyAnswers.hiddenHeaders).size, ProxyAnswers.hiddenHeaders.length)
  })

  it("has one error for each status, with a message that says what to do", () => {
    const statuses = ProxyAnswers.errors.flatMap((error) => error.statuses)
    assert.strictEqual(new Set(statuses).size, statuses.length)
    assert.includeMembers(statuses, [400, 403, 404, 405, 413, 429, 502, 504])
    for (const { code, message } of ProxyAnswers.errors) {
      assert.match(code, /^[a-z_]+$/u)
      assert.match(message, /\. [A-Z].*\.$/u)
    }
  })
})
