/** The contract, over the ledger in memory. */
import { Ledger } from "@cogni/sandbox-ledger"
import { LedgerContract } from "@cogni/sandbox-ledger/testing"
import { Layer } from "effect"

LedgerContract.suite("memory", Layer.succeed(LedgerContract.Ledgers, { empty: Ledger.makeMemory() }))
