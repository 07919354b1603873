/** The digest of a run's events. */
import { assert, describe, it } from "@effect/vitest"
import * as EventsDigest from "../src/internal/EventsDigest.ts"

describe("EventsDigest", () => {
  it("hashes the events as JSON lines, in order", () => {
    const [one, other] = [EventsDigest.make(), EventsDigest.make()]
    one.add([{ type: "text_delta", delta: "a" }])
    one.add([{ type: "done" }])
    other.add([{ type: "done" }, { type: "text_delta", delta: "a" }])
    assert.strictEqual(one.value().count, 2)
    assert.notStrictEqual(one.value().sha256, other.value().sha256)
    assert.strictEqual(one.value().sha256, "609af996b43f8542bf9f040e2d9105f780233173ba05ca35a87a221b3b1543cf")
  })
})
