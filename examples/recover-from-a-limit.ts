/**
 * A broken limit is an error with the partial result; an exit code is a value.
 *
 * The simulated agent writes an answer, then grows until the kernel stops it.
 */
import { SandboxRunner } from "@cogni/sandbox-core"
import { Effect } from "effect"

const MiB = 1024 ** 2

const memory = SandboxRunner.layerMemory({
  program: ({ spec, stdout }) =>
    stdout("half an answer").pipe(
      Effect.as({
        exitCode: 137,
        oomKilled: spec.limits.memoryBytesMax < 512 * MiB,
        processesRefused: false,
        peak: { memoryBytes: spec.limits.memoryBytesMax }
      })
    )
})

const program = Effect.gen(function* () {
  const runner = yield* SandboxRunner.SandboxRunner
  const text = yield* runner
    .run({ image: "any", argv: ["grow"], limits: { memoryBytesMax: 256 * MiB } })
    .pipe(
      Effect.map((result) => result.output.stdout.text),
      Effect.catchReason("SandboxError", "OomKilled", (reason) => {
        console.log(reason.message)
        return Effect.succeed(reason.partial.output.stdout.text)
      })
    )
  console.log(`kept: ${text}`)
})

await Effect.runPromise(program.pipe(Effect.provide(memory)))
