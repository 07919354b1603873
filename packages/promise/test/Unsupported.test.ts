import { assert, describe, it } from "@effect/vitest"
import { Unsupported } from "../src/index.ts"

describe("Unsupported", () => {
  it("names the operation and the reason, and is an ordinary error", () => {
    const error = new Unsupported({ operation: "Session.openPort", reason: "a sandbox has no network" })
    assert.instanceOf(error, Error)
    assert.strictEqual(error._tag, "Unsupported")
    assert.strictEqual(
      String(error),
      "Unsupported: Session.openPort is not supported: a sandbox has no network"
    )
  })
})
