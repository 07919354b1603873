/** Adapts a program that is an ordinary function to the container runtime in memory. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { Effect, FiberSet, Stream } from "effect"
import type { MemoryOutput, MemoryProgram } from "../MemoryProgram.ts"
import * as PromiseFiles from "./PromiseFiles.ts"

export const toProgram =
  (program: MemoryProgram): Program =>
  ({ argv, env, files, stderr, stdin, stdout, terminated, workingDirectory }) =>
    Effect.gen(function* () {
      const promise = yield* FiberSet.makeRuntimePromise()
      const output = yield* Effect.tryPromise((signal) =>
        Promise.resolve(
          program({
            argv,
            env,
            stdin: Stream.toAsyncIterable(stdin),
            workingDirectory,
            files: PromiseFiles.make(files, (asked, ends) => promise(asked, { signal: ends })),
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
      // A function cannot handle signals, so that SIGTERM ends it.
    }).pipe(Effect.scoped, Effect.raceFirst(Effect.as(terminated, 143)))
