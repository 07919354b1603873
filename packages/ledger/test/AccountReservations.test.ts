/** The contract, over reservations in memory. */
import { AccountReservations, Ledger } from "@cogni/sandbox-ledger"
import { AccountContract } from "@cogni/sandbox-ledger/testing"
import { Effect, Layer } from "effect"

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
