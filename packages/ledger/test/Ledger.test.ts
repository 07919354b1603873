/** The contract, over the ledger in memory. */
import { Ledger } from "@cogni/sandbox-ledger"
import { LedgerContract } from "@cogni/sandbox-ledger/testing"

LedgerContract.suite("memory", Ledger.layerMemory())
