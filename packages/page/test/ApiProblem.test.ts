/** Problems that the page is answered with. */
import { assert, describe, it } from "@effect/vitest"
import { ofAnswer, retrySecondsMax } from "../src/ApiProblem.ts"

describe("the time until a request is repeated", () => {
  it("is that of the answer, up to a minute", () => {
    const secondsOf = (retryAfter: string | null) => ofAnswer(503, undefined, retryAfter).retrySeconds
    assert.strictEqual(secondsOf("5"), 5)
    assert.strictEqual(secondsOf("0"), 0)
    for (const long of ["61", "9999999", "1e999"]) assert.strictEqual(secondsOf(long), retrySecondsMax)
    for (const none of [null, "-1", "soon", "Fri, 27 Nov 2026 03:00:00 GMT"])
      assert.isUndefined(secondsOf(none))
  })
})
