import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Duplex } from "node:stream"
import * as AttachedContainer from "../src/internal/engine/AttachedContainer.ts"

/** A held container whose stream the test ends. */
const waiting = Effect.gen(function* () {
  const socket = new Duplex({ read: () => undefined, write: (_bytes, _encoding, done) => done() })
  const attached = yield* AttachedContainer.make({ socket, held: true, onEnd: () => undefined })
  yield* attached.listen
  return {
    attached,
    end: Effect.andThen(
      Effect.sync(() => socket.push(null)),
      attached.ended
    )
  }
})

/** Claims, and returns the error. */
const refusal = ({ claim }: Effect.Success<typeof waiting>["attached"]) =>
  Effect.map(Effect.flip(claim("claim\n", "")), ({ message }) => message)

const endedEarly = "the sandbox ended before the agent could start"

describe("AttachedContainer", () => {
  it.effect("fails a claim at once if the container ended while it waited", () =>
    Effect.gen(function* () {
      const { attached, end } = yield* waiting
      yield* end
      const claiming = yield* Effect.forkChild(refusal(attached))
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), endedEarly)
    }).pipe(Effect.scoped)
  )

  it.effect("fails a claim at once if the container ends before it reports", () =>
    Effect.gen(function* () {
      const { attached, end } = yield* waiting
      const claiming = yield* Effect.forkChild(refusal(attached), { startImmediately: true })
      yield* end
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), endedEarly)
    }).pipe(Effect.scoped)
  )

  it.effect("gives a container 5 s to report to its run", () =>
    Effect.gen(function* () {
      const { attached } = yield* waiting
      const claiming = yield* Effect.forkChild(refusal(attached))
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), "within 5 s")
    }).pipe(Effect.scoped)
  )
})
