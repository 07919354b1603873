/** `RunStore` over a directory of the host keeps the same contract as the one in memory. */
import { RunStoreContract } from "@cogni/sandbox-core/testing"
import * as RunHarness from "../harness/RunHarness.ts"

RunStoreContract.suite("files", RunHarness.layer())
