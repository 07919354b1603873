/** The tools of a session in a sealed sandbox meet the same contract as on the host and in memory. */
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { ToolContract } from "@cogni/sandbox-loop/testing"
import { Effect, Layer } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

ToolContract.suite(
  "docker",
  Layer.effect(
    ToolContract.TestExecutor,
    Effect.flatMap(SandboxRunner.SandboxRunner, (runner) =>
      // Allows a sparse file of ten gigabytes, because no file may be longer than the workspace limit.
      runner.open({ image: Images.runtime, limits: { workspaceBytesMax: 16 * 1024 ** 3 } })
    )
  ).pipe(Layer.provide(RunHarness.layer())),
  ToolContract.shellFixture
)
