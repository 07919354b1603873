/** Runs the tool contract in memory and on the host. `test/integration` runs it with Docker. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as HostExecutor from "@cogni/sandbox-sessions/executor/HostExecutor"
import { ToolContract } from "@cogni/sandbox-loop/testing"
import * as CommandBehaviour from "@cogni/sandbox-loop/testing/CommandBehaviour"
import { Effect, Layer } from "effect"
import { mkdtempSync, realpathSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

ToolContract.suite(
  "memory",
  Layer.effect(
    ToolContract.TestExecutor,
    Effect.flatMap(SandboxRunner.SandboxRunner, (runner) => runner.open({ image: "memory/tools" }))
  ).pipe(Layer.provide(SandboxRunner.layerMemory({ program: CommandBehaviour.program })))
)

ToolContract.suite(
  "host",
  Layer.effect(
    ToolContract.TestExecutor,
    Effect.acquireRelease(
      Effect.sync(() => realpathSync(mkdtempSync(join(tmpdir(), "cogni-test-")))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    ).pipe(
      Effect.flatMap((workspace) =>
        HostExecutor.make({
          workspace,
          limits: { outputBytesMax: 64 * 1024 ** 2, outputRetainedBytesMax: 4 * 1024 ** 2 }
        })
      )
    )
  ).pipe(Layer.provide(NodeServices.layer)),
  ToolContract.shellFixture
)
