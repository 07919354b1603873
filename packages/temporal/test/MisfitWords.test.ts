/** Messages of runs that no host took. */
import { assert, describe, it } from "@effect/vitest"
import { messageOf } from "../src/internal/MisfitWords.ts"

describe("the reason why no host took a run", () => {
  it("says what to do if more room would not help", () => {
    const asked = { grantId: "grant-1", graphId: "sandbox:agent" }
    const message = messageOf("NoSuchGrant", asked)
    assert.include(message, "no token of grant grant-1. Check the ID (grants list)")
    assert.include(messageOf("NoSuchGraph", asked), "does not offer sandbox:agent")
    for (const reason of ["LabelMissing", "TooLarge"]) assert.match(messageOf(reason, asked), /\. \w/u)
    for (const reason of ["Full", "toString"]) assert.strictEqual(messageOf(reason, asked), reason)
  })
})
