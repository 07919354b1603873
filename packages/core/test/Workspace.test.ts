import { Workspace } from "@cogni/sandbox-core"
import { WorkspaceContract } from "@cogni/sandbox-core/testing"

WorkspaceContract.suite(
  "memory",
  Workspace.layerMemory({ directories: WorkspaceContract.memoryDirectories }),
  WorkspaceContract.memoryFixture
)
