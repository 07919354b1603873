/** Numbers from which readers resume. `Runs.test.ts` tests the rest. */
import { assert, describe, it } from "@effect/vitest"
import { afterOf } from "../src/internal/FollowHandler.ts"

describe("the number after which a reader resumes", () => {
  it("comes from the event source, or else from the query, and is never more than a database can store", () => {
    assert.strictEqual(afterOf(undefined, undefined), 0)
    assert.strictEqual(afterOf(undefined, 7), 7)
    assert.strictEqual(afterOf("8", 7), 8)
    assert.strictEqual(afterOf("x", 7), 7)
    for (const after of [2 ** 31, 1e300]) assert.strictEqual(afterOf(undefined, after), 2 ** 31 - 1)
    assert.strictEqual(afterOf("999999999999999", 7), 2 ** 31 - 1)
  })
})
