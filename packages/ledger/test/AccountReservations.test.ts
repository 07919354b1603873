/** The contract, over reservations in memory, and a release that overtakes its reservation. */
import { assert, describe, it } from "@effect/vitest"
import { AccountReservations, Ledger } from "@cogni/sandbox-ledger"
import { AccountContract } from "@cogni/sandbox-ledger/testing"
import * as LedgerSamples from "../src/testing/LedgerSamples.ts"
import { Deferred, Effect, Fiber, Layer } from "effect"

AccountContract.suite(
  "memory",
  Layer.succeed(AccountContract.AccountPairs, {
    empty: Effect.gen(function* () {
      const ledger = yield* Ledger.makeMemory()
      const reservations = yield* Effect.provideService(AccountReservations.makeMemory, Ledger.Ledger, ledger)
      return { ledger, reservations }
    })
  })
)

describe("AccountReservations", () => {
  it.effect("releases a reservation that is being stored when its release comes", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.makeMemory()
      const reached = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      const held = Ledger.Ledger.of({
        ...ledger,
        list: (...asked) =>
          Deferred.succeed(reached, undefined).pipe(
            Effect.andThen(Deferred.await(gate)),
            Effect.andThen(ledger.list(...asked))
          )
      })
      const reservations = yield* Effect.provideService(AccountReservations.makeMemory, Ledger.Ledger, held)
      const reservation = LedgerSamples.reservationOf("run-00000001", 1, {})
      const reserving = yield* Effect.forkChild(reservations.reserve(reservation))
      yield* Deferred.await(reached)
      const releasing = yield* Effect.forkChild(reservations.release(reservation), {
        startImmediately: true
      })
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(reserving)
      yield* Fiber.join(releasing)
      assert.strictEqual((yield* reservations.standing("account-1", LedgerSamples.now)).runs, 0)
    })
  )
})
