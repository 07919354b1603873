/** `RunStore` in a host directory meets the same contract as the one in memory. */
import { RunStoreContract } from "@cogni/sandbox-core/testing"
import * as RunHarness from "../harness/RunHarness.ts"

RunStoreContract.suite("files", RunHarness.layer())
