import { SandboxRunner } from "@cogni/sandbox-core"
import { Effect } from "effect"

const program = Effect.gen(function* () {
  const runner = yield* SandboxRunner.SandboxRunner
  const result = yield* runner.run({ image: "any", argv: ["greet", "world"] })
  console.log(`exit code ${result.exitCode}, said: ${result.output.stdout.text}`)
})

// Simulates the agent in memory. The layers of @cogni/sandbox-docker run a real one in a sealed container.
const memory = SandboxRunner.layerMemory({
  program: ({ argv, stdout }) => Effect.as(stdout(`hello, ${argv[1]}`), 0)
})

await Effect.runPromise(program.pipe(Effect.provide(memory)))
