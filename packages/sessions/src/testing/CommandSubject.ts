/** Subject of `ExecutorContract`, and helpers to observe it. */
import { written } from "@cogni/sandbox-core/testing/Behaviour"
import type { Executor, RunningCommand } from "@cogni/sandbox-core/Executor"
import type { ExecOptions, ExecResult } from "@cogni/sandbox-core/ExecutorValues"
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { FileProblem } from "@cogni/sandbox-core/SandboxReason"
import { assert } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Fiber, type Scope, Stream } from "effect"
import type { HostExecutorOptions } from "../executor/HostExecutor.ts"
import type { Behaviour, Words } from "@cogni/sandbox-loop/testing/CommandBehaviour"

/** Limits of a tested executor. The defaults are high enough for every command of the contract. */
export type SubjectLimits = Partial<HostExecutorOptions["limits"]>

/** Makes executors, each with its own workspace. */
export class Executors extends Context.Service<
  Executors,
  {
    readonly words: Words
    readonly open: (limits?: SubjectLimits) => Effect.Effect<Executor, SandboxError, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/testing/Executors") {}

/** Inputs of a test. */
export interface Subject {
  readonly words: Words
  /** Shared by all tests; each test uses its own files. */
  readonly executor: Executor
  readonly open: Executors["Service"]["open"]
  readonly run: (behaviour: Behaviour, options?: ExecOptions) => Effect.Effect<ExecResult, SandboxError>
}

/** Tests by title. */
export type Promises = Readonly<
  Record<string, (subject: Subject) => Effect.Effect<void, SandboxError, Scope.Scope>>
>

/** Waits until the command writes `ready`, and discards the rest of its output. */
export const untilReady = Effect.fnUntraced(function* (running: RunningCommand) {
  const ready = yield* Deferred.make<void, SandboxError>()
  yield* Stream.runForEach(running.output, (chunk) =>
    written([chunk], "stdout").includes("ready") ? Deferred.succeed(ready, undefined) : Effect.void
  ).pipe(
    Effect.onError((cause) => Deferred.failCause(ready, cause)),
    Effect.forkScoped
  )
  yield* Deferred.await(ready)
})

/** Returns how often a command's child has written. */
export const beatsOf = ({ executor }: Pick<Subject, "executor">, path: string) =>
  executor.files.read(path).pipe(
    Effect.map((content) => content.byteLength),
    Effect.catchReason("SandboxError", "FileRefused", (refused, error) =>
      refused.problem === "not_found" ? Effect.succeed(0) : Effect.fail(error)
    )
  )

/** Polls until the check is true. `what` names the condition in the error. */
export const until = <E, R>(what: string, check: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    while (!(yield* check)) yield* Effect.sleep("20 millis")
  }).pipe(
    Effect.timeoutOrElse({
      duration: "5 minutes",
      orElse: () => Effect.die(`timed out after 5 minutes: ${what}`)
    })
  )

/** Waits until the child has written more than `more` times. */
export const untilBeats = (subject: Pick<Subject, "executor">, path: string, more = 0) =>
  until(
    `${path} is written to`,
    Effect.map(beatsOf(subject, path), (beats) => beats > more)
  )

/** Interrupts an effect after a delay, whatever its state. */
export const interruptedAfter = <A, E, R>(
  asked: Effect.Effect<A, E, R>,
  millis: number
): Effect.Effect<void, never, R> =>
  Effect.gen(function* () {
    const fiber = yield* Effect.forkChild(asked, { startImmediately: true })
    yield* Effect.sleep(Duration.millis(millis))
    yield* Fiber.interrupt(fiber)
  })

/** Asserts that the child has written, and no longer writes. */
export const assertSilent = Effect.fnUntraced(function* (subject: Pick<Subject, "executor">, path: string) {
  const beats = yield* beatsOf(subject, path)
  assert.isAbove(beats, 0, "the child never started")
  yield* Effect.sleep("400 millis")
  assert.strictEqual(yield* beatsOf(subject, path), beats, "the child is still running")
})

/** Returns the reason of an expected failure. */
export const reasonOf = <A, R>(asked: Effect.Effect<A, SandboxError, R>): Effect.Effect<Reason, never, R> =>
  Effect.matchEffect(asked, {
    onSuccess: (answer) =>
      Effect.die(`it did not fail, but answered ${JSON.stringify(answer)?.slice(0, 300)}`),
    onFailure: ({ reason }) => Effect.succeed(reason)
  })

/** Returns the problem of an expected file refusal. */
export const problemOf = <A, R>(
  asked: Effect.Effect<A, SandboxError, R>
): Effect.Effect<FileProblem | Reason["_tag"], never, R> =>
  Effect.map(reasonOf(asked), (reason) => (reason._tag === "FileRefused" ? reason.problem : reason._tag))
