/** Which runs fit on a host. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import type { HostNeeds } from "../src/DurableRun.ts"
import * as Placement from "../src/internal/Placement.ts"

const capacity: Placement.HostCapacity = {
  runsMax: 3,
  cores: 4,
  memoryBytes: 1000,
  labels: ["gpu", "region=eu"],
  graphIds: ["sandbox:agent"],
  grantIds: ["grant-1"]
}

const asked = (runId: string, needs: HostNeeds = {}): Placement.Asked => ({
  runId,
  graphId: "sandbox:agent",
  grantId: "grant-1",
  needs
})

/** Places runs one after the other, if they fit. */
const placed = (runs: ReadonlyArray<Placement.Asked>, now = 0) =>
  runs.reduce(
    (places, run) =>
      Placement.misfit(capacity, places, run, now) === undefined
        ? Placement.reserve(places, run, now)
        : places,
    Placement.empty
  )

const Step = Schema.Struct({
  run: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 })),
  does: Schema.Literals(["place", "begin", "linger", "leave"]),
  cores: Schema.Literals([0, 1, 2]),
  seconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 40 }))
})

describe("a host", () => {
  it.prop(
    "never has more runs, and never promises more cores, than it has",
    [Schema.Array(Step)],
    ([steps]) => {
      let now = 0
      let places = Placement.empty
      for (const { cores, does, run, seconds } of steps) {
        now += seconds * 1000
        const one = asked(`run-${run}`, cores === 0 ? {} : { cores })
        if (does === "place" && Placement.misfit(capacity, places, one, now) === undefined)
          places = Placement.reserve(places, one, now)
        // A run begins only where it was placed a moment ago.
        const its = places.runs.get(one.runId)
        if (does === "begin" && its !== undefined && (its.expiresAt ?? now + 1) > now)
          places = Placement.begin(places, one.runId, its.needs)
        if (does === "linger") places = Placement.linger(places, one.runId, now)
        if (does === "leave") places = Placement.leave(places, one.runId)
        assert.isAtMost(Placement.count(places, now), capacity.runsMax)
        const promised = [...places.runs.values()]
          .filter(({ expiresAt = Infinity }) => expiresAt > now)
          .reduce((sum, { needs }) => sum + (needs.cores ?? 0), 0)
        assert.isAtMost(promised, capacity.cores)
      }
    }
  )

  it("is full when its runs, cores or memory are", () => {
    const full = placed([asked("a"), asked("b"), asked("c")])
    assert.strictEqual(Placement.misfit(capacity, full, asked("d"), 0), "Full")
    const busy = placed([asked("a", { cores: 3 })])
    assert.strictEqual(Placement.misfit(capacity, busy, asked("b", { cores: 2 }), 0), "Full")
    assert.isUndefined(Placement.misfit(capacity, busy, asked("b", { cores: 1 }), 0))
    const used = placed([asked("a", { memoryBytes: 600 })])
    assert.strictEqual(Placement.misfit(capacity, used, asked("b", { memoryBytes: 500 }), 0), "Full")
  })

  it("keeps the place of a run that asks again", () => {
    const full = placed([asked("a"), asked("b"), asked("c")])
    assert.isUndefined(Placement.misfit(capacity, full, asked("a"), 0))
  })

  it("frees a place after a minute in which its run did not arrive, and never one of a run that has begun", () => {
    const places = Placement.begin(placed([asked("a"), asked("b"), asked("c")]), "a", {})
    assert.strictEqual(Placement.count(places, Placement.reservedMillis), 1)
    assert.isUndefined(Placement.misfit(capacity, places, asked("d"), Placement.reservedMillis))
  })

  it("ends the reservation of a run that will not arrive, and keeps the place of one that has begun", () => {
    const places = Placement.begin(placed([asked("a"), asked("b")]), "a", {})
    const left = ["a", "b", "c"].reduce(Placement.giveBack, places)
    assert.deepStrictEqual([...left.runs.keys()], ["a"])
  })

  it("refuses what it can never run", () => {
    const misfit = (run: Placement.Asked) => Placement.misfit(capacity, Placement.empty, run, 0)
    assert.strictEqual(misfit({ ...asked("a"), grantId: "grant-2" }), "NoSuchGrant")
    assert.strictEqual(misfit({ ...asked("a"), graphId: "sandbox:other" }), "NoSuchGraph")
    assert.strictEqual(misfit(asked("a", { labels: ["gpu", "region=us"] })), "LabelMissing")
    assert.strictEqual(misfit(asked("a", { cores: 5 })), "TooLarge")
    assert.isUndefined(misfit(asked("a", { labels: ["gpu"], cores: 4 })))
  })

  it("takes no run whose image is missing, until the image is there", () => {
    const without = Placement.lack(Placement.empty, ["sandbox:agent"])
    assert.strictEqual(Placement.misfit(capacity, without, asked("a"), 0), "ImageMissing")
    assert.isUndefined(Placement.misfit(capacity, Placement.lack(without, []), asked("a"), 0))
  })

  it("takes nothing while it drains, or is closed", () => {
    assert.strictEqual(
      Placement.misfit(capacity, Placement.drain(Placement.empty), asked("a"), 0),
      "Draining"
    )
    const closed = Placement.close(Placement.empty, 5000)
    assert.strictEqual(Placement.misfit(capacity, closed, asked("a"), 4999), "Full")
    assert.isUndefined(Placement.misfit(capacity, closed, asked("a"), 5000))
  })

  it("takes no run of a closed grant for a while, and remembers at most so many of them", () => {
    const other = { ...capacity, grantIds: ["grant-1", "grant-2"] }
    const misfit = (places: Placement.Places, grantId: string, now: number) =>
      Placement.misfit(other, places, { ...asked("a"), grantId }, now)
    const closed = Placement.closeGrant(Placement.empty, "grant-1", 5000, 0)
    assert.strictEqual(misfit(closed, "grant-1", 4999), "GrantFull")
    assert.isUndefined(misfit(closed, "grant-2", 4999))
    assert.isUndefined(misfit(closed, "grant-1", 5000))
    assert.isTrue(Placement.hasRoom(other, closed, 0))
    // Those whose time is over are forgotten, and so are the first of too many.
    assert.strictEqual(Placement.closeGrant(closed, "grant-2", 9000, 5000).closedGrants.size, 1)
    const many = Array.from({ length: Placement.closedGrantsMax + 5 }, (_, at) => `grant-${at}`).reduce(
      (places, grantId) => Placement.closeGrant(places, grantId, 5000, 0),
      Placement.empty
    )
    assert.strictEqual(many.closedGrants.size, Placement.closedGrantsMax)
    assert.isFalse(many.closedGrants.has("grant-4"))
    assert.isTrue(many.closedGrants.has("grant-5"))
  })
})
