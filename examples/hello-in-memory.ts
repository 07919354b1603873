import { SandboxRunner } from "@cogni/sandbox-core"
import { Effect } from "effect"

const program = Effect.gen(function* () {
  const runner = yield* SandboxRunner.SandboxRunner
  const result = yield* runner.run({ image: "any", argv: ["greet", "world"] })
  console.log(`exit code ${result.exitCode}, said: ${result.output.stdout.text}`)
})

// What would be the agent. With the layers of @cogni/sandbox-docker, it is a sealed container instead.
const memory = SandboxRunner.layerMemory({
  program: ({ argv, stdout }) => Effect.as(stdout(`hello, ${argv[1]}`), 0)
})

await Effect.runPromise(program.pipe(Effect.provide(memory)))
