import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { isOrphaned, liveness, self } from "@cogni/sandbox-docker/HostOwner"

const now = new Date("2030-01-01T00:00:00Z")
const before = "2029-12-31T00:00:00Z"
const after = "2030-01-02T00:00:00Z"

describe("HostOwner", () => {
  it("reports this process as alive, and its resources as not orphaned even after they expired", () => {
    assert.strictEqual(liveness(self()), "alive")
    assert.isFalse(isOrphaned(formatOwner(self()), before, now))
  })

  it("does not mistake a process that reuses the ID of a dead owner for that owner", () => {
    const dead = { ...self(), startTicks: self().startTicks + 1 }
    assert.strictEqual(liveness(dead), "dead")
    assert.isTrue(isOrphaned(formatOwner(dead), after, now))
  })

  it("keeps the resources of an unknown owner until they expire", () => {
    const foreign = formatOwner({ ...self(), bootId: "another-boot-1" })
    assert.isFalse(isOrphaned(foreign, after, now))
    assert.isTrue(isOrphaned(foreign, before, now))
    assert.isFalse(isOrphaned("not an owner", undefined, now))
  })
})
