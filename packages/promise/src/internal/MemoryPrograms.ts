/** Adapts a program that is an ordinary function to the container runtime in memory. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { Effect, FiberSet } from "effect"
import type { MemoryOutput, MemoryProgram } from "../MemoryProgram.ts"

export const toProgram =
  (program: MemoryProgram): Program =>
  ({ argv, env, files, stderr, stdin, stdout, workingDirectory }) =>
    Effect.gen(function* () {
      const promise = yield* FiberSet.makeRuntimePromise()
      const output = yield* Effect.tryPromise((signal) =>
        Promise.resolve(
          program({
            argv,
            env,
            stdin,
            workingDirectory,
            files: {
              read: (path) => promise(files.read(path)),
              write: (path, content) => promise(files.write(path, content))
            },
            stdout: (text) => promise(stdout(text)),
            stderr: (text) => promise(stderr(text)),
            signal
          })
        )
      ).pipe(
        Effect.catch(({ cause }) =>
          Effect.succeed<MemoryOutput>({ exitCode: 1, stderr: `${String(cause)}\n` })
        )
      )
      if (output.stdout !== undefined) yield* stdout(output.stdout)
      if (output.stderr !== undefined) yield* stderr(output.stderr)
      return output.exitCode ?? 0
    }).pipe(Effect.scoped)
