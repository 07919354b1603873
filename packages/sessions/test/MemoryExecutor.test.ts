/** Runs the executor contract on a memory sandbox. */
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { ExecutorContract } from "@cogni/sandbox-sessions/testing"
import * as CommandBehaviour from "@cogni/sandbox-loop/testing/CommandBehaviour"
import * as CommandSubject from "../src/testing/CommandSubject.ts"
import { Effect, Layer } from "effect"

const layer = Layer.effect(
  CommandSubject.Executors,
  Effect.map(SandboxRunner.SandboxRunner, (runner) =>
    CommandSubject.Executors.of({
      words: CommandBehaviour.memory,
      open: (limits = {}) => runner.open({ image: "memory", limits })
    })
  )
).pipe(Layer.provide(SandboxRunner.layerMemory({ program: CommandBehaviour.program })))

ExecutorContract.suite("memory", layer, ["opensOutputByName"])
