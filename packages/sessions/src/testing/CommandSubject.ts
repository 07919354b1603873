/** What `ExecutorContract` looks at, and with which eyes. */
import { written } from "@cogni/sandbox-core/testing/Behaviour"
import type { ExecOptions, ExecResult, Executor, RunningCommand } from "@cogni/sandbox-core/Executor"
import type { FileProblem, Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { assert } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Fiber, type Scope, Stream } from "effect"
import type { HostExecutorOptions } from "../executor/HostExecutor.ts"
import type { Behaviour, Words } from "@cogni/sandbox-loop/testing/CommandBehaviour"

/** Of an executor of the contract; what is left out is wide enough for any of its commands. */
export type SubjectLimits = Partial<HostExecutorOptions["limits"]>

/** Makes executors, each with a workspace of its own. */
export class Executors extends Context.Service<
  Executors,
  {
    readonly words: Words
    readonly open: (limits?: SubjectLimits) => Effect.Effect<Executor, SandboxError, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/testing/Executors") {}

/** What a test is given. */
export interface Subject {
  readonly words: Words
  /** The same for all tests: each has files of its own. */
  readonly executor: Executor
  readonly open: Executors["Service"]["open"]
  readonly run: (behaviour: Behaviour, options?: ExecOptions) => Effect.Effect<ExecResult, SandboxError>
}

/** By what they promise. */
export type Promises = Readonly<
  Record<string, (subject: Subject) => Effect.Effect<void, SandboxError, Scope.Scope>>
>

/** Wait until the command has said so. The rest of its output is read and dropped. */
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

/** How often a command's child has written. */
export const beatsOf = ({ executor }: Pick<Subject, "executor">, path: string) =>
  executor.files.read(path).pipe(
    Effect.map((content) => content.byteLength),
    Effect.catchReason("SandboxError", "FileRefused", (refused, error) =>
      refused.problem === "not_found" ? Effect.succeed(0) : Effect.fail(error)
    )
  )

/** Look again and again, until it is so. `what` is said when it never is. */
export const until = <E, R>(what: string, check: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    while (!(yield* check)) yield* Effect.sleep("20 millis")
  }).pipe(
    Effect.timeoutOrElse({
      duration: "5 minutes",
      orElse: () => Effect.die(`after 5 minutes not yet: ${what}`)
    })
  )

/** Wait until it has, more than so often. */
export const untilBeats = (subject: Pick<Subject, "executor">, path: string, more = 0) =>
  until(
    `${path} is written to`,
    Effect.map(beatsOf(subject, path), (beats) => beats > more)
  )

/** Whatever it was doing then. */
export const interruptedAfter = <A, E, R>(
  asked: Effect.Effect<A, E, R>,
  millis: number
): Effect.Effect<void, never, R> =>
  Effect.gen(function* () {
    const fiber = yield* Effect.forkChild(asked, { startImmediately: true })
    yield* Effect.sleep(Duration.millis(millis))
    yield* Fiber.interrupt(fiber)
  })

/** It had begun, and does so no more. */
export const assertSilent = Effect.fnUntraced(function* (subject: Pick<Subject, "executor">, path: string) {
  const beats = yield* beatsOf(subject, path)
  assert.isAbove(beats, 0, "its child had never begun")
  yield* Effect.sleep("400 millis")
  assert.strictEqual(yield* beatsOf(subject, path), beats, "its child is still there")
})

/** Of one that must fail, why. */
export const reasonOf = <A, R>(asked: Effect.Effect<A, SandboxError, R>): Effect.Effect<Reason, never, R> =>
  Effect.matchEffect(asked, {
    onSuccess: (answer) =>
      Effect.die(`it did not fail, but answered ${JSON.stringify(answer)?.slice(0, 300)}`),
    onFailure: ({ reason }) => Effect.succeed(reason)
  })

/** Of a file that must be refused, in which way. */
export const problemOf = <A, R>(
  asked: Effect.Effect<A, SandboxError, R>
): Effect.Effect<FileProblem | Reason["_tag"], never, R> =>
  Effect.map(reasonOf(asked), (reason) => (reason._tag === "FileRefused" ? reason.problem : reason._tag))
