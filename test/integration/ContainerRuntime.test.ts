/** `ContainerRuntime` over real Docker keeps the same contract as the one in memory. */
import { ContainerRuntimeContract } from "@cogni/sandbox-core/testing"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

ContainerRuntimeContract.suite("docker", RunHarness.layer(), {
  image: Images.runtime,
  missingImage: Images.absent,
  user: { userId: 1000, groupId: 1000 },
  argv: ContainerRuntimeContract.shell
})
