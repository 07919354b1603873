/** Which second worker of a name is refused. `test/integration/HostNames.test.ts` tests it with a server. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Ref } from "effect"
import { TestClock } from "effect/testing"
import { identityOf, inUse, livingMillis, otherHost, watched } from "../src/internal/HostName.ts"
import { TemporalFailed } from "../src/TemporalServer.ts"

const seen = (hostId: string | undefined, agoMillis: number, processId = 7) => ({
  identity: identityOf("host-1", hostId, processId),
  seenMillis: 1_000_000 - agoMillis
})

/** The worker that asks, of the host `a`. */
const own = identityOf("host-1", "a", 1)

describe("the name of a host", () => {
  it("is in use by another host that polled a moment ago", () => {
    assert.strictEqual(otherHost([seen("a", 1000), seen("b", 1000)], own, 1_000_000), "b")
    assert.strictEqual(otherHost([seen("b", livingMillis - 1)], own, 1_000_000), "b")
  })

  it("is free for the next worker of the same host, and after a host that is gone", () => {
    assert.isUndefined(otherHost([seen("a", 0), seen("a", 1000)], own, 1_000_000))
    assert.isUndefined(otherHost([seen("b", livingMillis)], own, 1_000_000))
  })

  it("does not depend on the clock of this host once its worker polls", () => {
    const hour = 60 * 60_000
    for (const nowMillis of [1_000_000 - hour, 1_000_000 + hour]) {
      assert.strictEqual(otherHost([seen("a", 30_000, 1), seen("b", 1000)], own, nowMillis), "b")
      assert.isUndefined(otherHost([seen("a", 0, 1), seen("b", livingMillis)], own, nowMillis))
    }
  })

  it("is free if a worker does not tell its host, as in an earlier version", () => {
    assert.isUndefined(
      otherHost([seen(undefined, 0), { identity: "other", seenMillis: 1_000_000 }], own, 1_000_000)
    )
  })

  it.effect("is watched, and an outage of Temporal does not end a worker", () =>
    Effect.gen(function* () {
      const answer = yield* Ref.make<TemporalFailed | undefined>(undefined)
      const check = Effect.flatMap(Ref.get(answer), (error) =>
        error === undefined ? Effect.void : Effect.fail(error)
      )
      const watching = yield* Effect.forkChild(Effect.flip(watched(check)))
      yield* TestClock.adjust("1 minute")
      yield* Ref.set(answer, TemporalFailed.of("answer", { code: 14 }))
      yield* TestClock.adjust("1 minute")
      assert.isUndefined(watching.pollUnsafe())
      yield* Ref.set(answer, inUse("host-1", "b"))
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* Fiber.join(watching)).reason, "HostNameInUse")
    })
  )
})
