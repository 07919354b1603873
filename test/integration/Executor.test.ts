/** `Executor` in a sandbox on real Docker meets the same contract as the one in memory and the one on the host. */
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { ExecutorContract } from "@cogni/sandbox-sessions/testing"
import * as CommandBehaviour from "@cogni/sandbox-loop/testing/CommandBehaviour"
import * as CommandSubject from "../../packages/sessions/src/testing/CommandSubject.ts"
import { Effect, Layer } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

ExecutorContract.suite(
  "docker",
  Layer.effect(
    CommandSubject.Executors,
    Effect.map(SandboxRunner.SandboxRunner, (runner) =>
      CommandSubject.Executors.of({
        words: CommandBehaviour.shell,
        open: (limits) =>
          runner.open({ image: Images.runtime, limits: { runtimeSecondsMax: 600, ...limits } })
      })
    )
  ).pipe(Layer.provide(RunHarness.layer())),
  ["hasLinks", "killsEscapees", "opensOutputByName"]
)
