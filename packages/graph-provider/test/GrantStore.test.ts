import { GrantStore } from "@cogni/sandbox-graph-provider"
import { GrantStoreContract } from "@cogni/sandbox-graph-provider/testing"

GrantStoreContract.suite("memory", GrantStore.layerMemory)
