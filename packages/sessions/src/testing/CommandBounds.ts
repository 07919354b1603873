/** What an executor promises of commands that go too far, or are cut off: bounded output and time, and nothing left. */
import type { ExecOptions } from "@cogni/sandbox-core/Executor"
import { assert } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Scope, Stream } from "effect"
import {
  assertSilent,
  beatsOf,
  interruptedAfter,
  type Promises,
  reasonOf,
  type Subject,
  untilBeats,
  untilReady
} from "./CommandSubject.ts"

export const output: Promises = {
  "what is kept of the output is its beginning, and all of it is counted": ({ open, run, words }) =>
    Effect.gen(function* () {
      const stdout = `${"a".repeat(1000)}${"b".repeat(4000)}`
      const asked: ExecOptions = { outputRetainedBytesMax: 1000 }
      const few = yield* run({ _tag: "Writes", stdout, stderr: "e".repeat(1000) }, asked)
      assert.deepStrictEqual(few.output, {
        stdout: { text: "a".repeat(1000), bytes: 5000, truncated: true },
        stderr: { text: "e".repeat(1000), bytes: 1000, truncated: false }
      })
      const executor = yield* open({ outputRetainedBytesMax: 10 })
      const fewer = yield* executor.exec(words.argv({ _tag: "Writes", stdout, stderr: "" }), asked)
      assert.deepStrictEqual(fewer.output.stdout, { text: "a".repeat(10), bytes: 5000, truncated: true })
    }).pipe(Effect.scoped),

  "a command that writes too much is ended, with what it had written": ({ open, words }) =>
    Effect.gen(function* () {
      const executor = yield* open({ outputBytesMax: 256 * 1024, outputRetainedBytesMax: 1024 })
      const path = "flood"
      const reason = yield* reasonOf(executor.exec(words.argv({ _tag: "Floods", path })))
      if (reason._tag !== "OutputLimitExceeded") return assert.fail(reason._tag)
      assert.strictEqual(reason.outputBytesMax, 256 * 1024)
      const { bytes, text, truncated } = reason.partial.output.stdout
      assert.deepStrictEqual([text, truncated], ["y\n".repeat(512), true])
      assert.isAbove(bytes, 256 * 1024)
      yield* assertSilent({ executor }, path)
      const after = yield* executor.exec(words.argv({ _tag: "Writes", stdout: "after", stderr: "" }))
      assert.strictEqual(after.output.stdout.text, "after")
    }).pipe(Effect.scoped)
}

const timedOut = Effect.fnUntraced(function* ({ run }: Subject, behaviour: Parameters<Subject["run"]>[0]) {
  const reason = yield* reasonOf(run(behaviour, { timeoutSecondsMax: 1 }))
  if (reason._tag !== "CommandTimedOut") return assert.fail(reason._tag)
  assert.strictEqual(reason.timeoutSecondsMax, 1)
  const after = yield* run({ _tag: "ExitsWith", exitCode: 4 })
  assert.strictEqual(after.exitCode, 4, "the executor lives on")
  return reason.partial.output
})

export const time: Promises = {
  "a command that takes too long is ended, with what it had said": (subject) =>
    Effect.gen(function* () {
      const { stdout } = yield* timedOut(subject, { _tag: "Sleeps" })
      assert.deepStrictEqual(stdout, { text: "ready\n", bytes: 6, truncated: false })
    }),

  "it is told first, and may say a last word": (subject) =>
    Effect.gen(function* () {
      const { stdout } = yield* timedOut(subject, { _tag: "TidiesUp", exitCode: 0 })
      assert.strictEqual(stdout.text, "ready\ntidied\n")
    }),

  "one that does not listen is gone too, with its child": (subject) =>
    Effect.gen(function* () {
      const path = "beats/both"
      yield* timedOut(subject, { _tag: "Beats", path: yield* placed(subject, path), ignoringTerm: "both" })
      yield* assertSilent(subject, path)
    }),

  "so is a child that does not listen, of one that does": (subject) =>
    Effect.gen(function* () {
      const path = "beats/child"
      yield* timedOut(subject, { _tag: "Beats", path: yield* placed(subject, path), ignoringTerm: "child" })
      yield* assertSilent(subject, path)
    }),

  "one that ends in time is no matter of time": ({ run }) =>
    Effect.gen(function* () {
      const result = yield* run({ _tag: "ExitsWith", exitCode: 5 }, { timeoutSecondsMax: 20 })
      assert.strictEqual(result.exitCode, 5)
    })
}

/** A file for a child to write to, whose directory is there. */
const placed = ({ executor }: Subject, path: string) => Effect.as(executor.files.write(path, "x"), path)

export const cut: Promises = {
  "whoever is interrupted leaves no command behind, and none of its children": (subject) =>
    Effect.gen(function* () {
      const path = yield* placed(subject, "beats/interrupted")
      const running = yield* Effect.forkChild(subject.run({ _tag: "Beats", path, ignoringTerm: "both" }), {
        startImmediately: true
      })
      yield* untilBeats(subject, path, 2)
      yield* Fiber.interrupt(running)
      yield* assertSilent(subject, path)
    }),

  "whoever is interrupted early does not leave one either": (subject) =>
    Effect.gen(function* () {
      const path = yield* placed(subject, "beats/early")
      const beats = subject.run({ _tag: "Beats", path, ignoringTerm: "both" })
      for (let millis = 0; millis < 12; millis++) yield* interruptedAfter(beats, millis)
      yield* assertSilent(subject, path)
    }),

  "a scope that closes takes its command with it, and the children of that": (subject) =>
    Effect.gen(function* () {
      const { executor, words } = subject
      const path = yield* placed(subject, "beats/scope")
      const scope = yield* Scope.make()
      const running = yield* Scope.provide(scope)(
        executor.spawn(words.argv({ _tag: "Beats", path, ignoringTerm: "both" }))
      )
      yield* Effect.forkChild(Effect.scoped(untilReady(running)))
      yield* untilBeats(subject, path, 2)
      yield* Scope.close(scope, Exit.void)
      yield* assertSilent(subject, path)
    }),

  "a signal goes to the command, which may answer": ({ executor, words }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "TidiesUp", exitCode: 42 }))
      yield* untilReady(running)
      yield* running.signal("SIGTERM")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 42 })
      yield* running.signal("SIGTERM")
      yield* running.signal("SIGKILL")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 42 }, "one that has ended hears nothing")
    }).pipe(Effect.scoped),

  "a signal goes to its children too": (subject) =>
    Effect.gen(function* () {
      const { executor, words } = subject
      const path = yield* placed(subject, "beats/signal")
      const running = yield* executor.spawn(words.argv({ _tag: "Beats", path, ignoringTerm: "both" }))
      yield* untilReady(running)
      yield* untilBeats(subject, path, 2)
      yield* running.signal("SIGKILL")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 137, signal: "SIGKILL" })
      yield* assertSilent(subject, path)
    }).pipe(Effect.scoped),

  "a child that a command leaves behind does not hold it, and lives on": (subject) =>
    Effect.gen(function* () {
      const path = "left"
      const [took, { exitCode, output }] = yield* Effect.timed(subject.run({ _tag: "LeavesBeating", path }))
      assert.deepStrictEqual([exitCode, output.stdout.text], [0, "ready\n"])
      assert.isBelow(Duration.toMillis(took), 5000)
      yield* untilBeats(subject, path, yield* beatsOf(subject, path))
    }),

  "what such a child goes on writing is lost, and does not hold whoever reads slowly": ({
    executor,
    words
  }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "LeavesWriting" }))
      let seen = 0
      yield* Stream.runForEach(running.output, ({ bytes }) =>
        Effect.andThen(
          Effect.sync(() => (seen += bytes.byteLength)),
          Effect.sleep("2 millis")
        )
      ).pipe(
        Effect.timeoutOrElse({ duration: "5 minutes", orElse: () => Effect.die("its output does not end") })
      )
      assert.isBelow(seen, 16 * 1024 ** 2)
      assert.deepStrictEqual(yield* running.exit, { exitCode: 0 })
    }).pipe(Effect.scoped)
}
