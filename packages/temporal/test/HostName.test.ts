/** Which second worker of a name is refused. `test/integration/HostNames.test.ts` tests it with a server. */
import { assert, describe, it } from "@effect/vitest"
import { identityOf, livingMillis, otherHost } from "../src/internal/HostName.ts"

const seen = (hostId: string | undefined, agoMillis: number) => ({
  identity: identityOf("host-1", hostId, 7),
  seenMillis: 1_000_000 - agoMillis
})

describe("the name of a host", () => {
  it("is in use by another host that polled a moment ago", () => {
    assert.strictEqual(otherHost([seen("a", 1000), seen("b", 1000)], "a", 1_000_000), "b")
    assert.strictEqual(otherHost([seen("b", livingMillis - 1)], "a", 1_000_000), "b")
  })

  it("is free for the next worker of the same host, and after a host that is gone", () => {
    assert.isUndefined(otherHost([seen("a", 0), seen("a", 1000)], "a", 1_000_000))
    assert.isUndefined(otherHost([seen("b", livingMillis)], "a", 1_000_000))
  })

  it("is free if a worker does not tell its host, as in an earlier version", () => {
    assert.isUndefined(
      otherHost([seen(undefined, 0), { identity: "other", seenMillis: 1_000_000 }], "a", 1_000_000)
    )
  })
})
