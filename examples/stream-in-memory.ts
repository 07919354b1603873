/** Shows a run while it happens: its phases, its posture, and its agent's output. */
import { SandboxRunner } from "@cogni/sandbox-core"
import { Effect, Stream } from "effect"

const memory = SandboxRunner.layerMemory({
  program: ({ stderr, stdout }) => stderr("thinking\n").pipe(Effect.andThen(stdout("42\n")), Effect.as(0))
})

const decoder = new TextDecoder()

const program = Effect.gen(function* () {
  const runner = yield* SandboxRunner.SandboxRunner
  yield* runner.stream({ runId: "run-example00001", image: "any", argv: ["answer"] }).pipe(
    Stream.runForEach((event) =>
      Effect.sync(() => {
        switch (event._tag) {
          case "RunStarted":
            return console.log(`${event.runId} started`)
          case "PhaseEnded":
            return console.log(`  ${event.phase} done`)
          case "PostureVerified":
            return console.log(
              `  posture: uid ${event.posture.userIds.join()}, interfaces: ${event.posture.interfaces.join()}`
            )
          case "OutputReceived":
            return console.log(`  ${event.channel}: ${decoder.decode(event.bytes).trimEnd()}`)
          case "RunEnded":
            return console.log(`ended with exit code ${event.result.exitCode}`)
        }
      })
    )
  )
})

await Effect.runPromise(program.pipe(Effect.provide(memory)))
