/** Executor contract: limits on output and time, and the cleanup of commands that are cut off. */
import type { ExecOptions } from "@cogni/sandbox-core/ExecutorValues"
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
  "keeps the beginning of the output, and counts all of it": ({ open, run, words }) =>
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

  "ends a command that exceeds the output limit, with its partial output": ({ open, words }) =>
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
  assert.strictEqual(after.exitCode, 4, "the executor still works")
  return reason.partial.output
})

export const time: Promises = {
  "ends a command that exceeds its time limit, with its partial output": (subject) =>
    Effect.gen(function* () {
      const { stdout } = yield* timedOut(subject, { _tag: "Sleeps" })
      assert.deepStrictEqual(stdout, { text: "ready\n", bytes: 6, truncated: false })
    }),

  "sends SIGTERM first, so that the command can clean up": (subject) =>
    Effect.gen(function* () {
      const { stdout } = yield* timedOut(subject, { _tag: "TidiesUp", exitCode: 0 })
      assert.strictEqual(stdout.text, "ready\ntidied\n")
    }),

  "kills a command that ignores SIGTERM, with its child": (subject) =>
    Effect.gen(function* () {
      const path = "beats/both"
      yield* timedOut(subject, { _tag: "Beats", path: yield* placed(subject, path), ignoringTerm: "both" })
      yield* assertSilent(subject, path)
    }),

  "kills a child that ignores SIGTERM, although its command does not": (subject) =>
    Effect.gen(function* () {
      const path = "beats/child"
      yield* timedOut(subject, { _tag: "Beats", path: yield* placed(subject, path), ignoringTerm: "child" })
      yield* assertSilent(subject, path)
    }),

  "does not affect a command that ends in time": ({ run }) =>
    Effect.gen(function* () {
      const result = yield* run({ _tag: "ExitsWith", exitCode: 5 }, { timeoutSecondsMax: 20 })
      assert.strictEqual(result.exitCode, 5)
    })
}

/** Creates the file that a child writes to, with its directory. */
const placed = ({ executor }: Subject, path: string) => Effect.as(executor.files.write(path, "x"), path)

export const cut: Promises = {
  "an interruption ends the command and its children": (subject) =>
    Effect.gen(function* () {
      const path = yield* placed(subject, "beats/interrupted")
      const running = yield* Effect.forkChild(subject.run({ _tag: "Beats", path, ignoringTerm: "both" }), {
        startImmediately: true
      })
      yield* untilBeats(subject, path, 2)
      yield* Fiber.interrupt(running)
      yield* assertSilent(subject, path)
    }),

  "an early interruption leaves no process": (subject) =>
    Effect.gen(function* () {
      const path = yield* placed(subject, "beats/early")
      const beats = subject.run({ _tag: "Beats", path, ignoringTerm: "both" })
      for (let millis = 0; millis < 12; millis++) yield* interruptedAfter(beats, millis)
      yield* assertSilent(subject, path)
    }),

  "closing the scope ends the command and its children": (subject) =>
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

  "a signal reaches the command, which can handle it": ({ executor, words }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "TidiesUp", exitCode: 42 }))
      yield* untilReady(running)
      yield* running.signal("SIGTERM")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 42 })
      yield* running.signal("SIGTERM")
      yield* running.signal("SIGKILL")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 42 }, "a signal after the exit has no effect")
    }).pipe(Effect.scoped),

  "a signal reaches the children of the command": (subject) =>
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

  "a remaining child does not delay the exit, and survives": (subject) =>
    Effect.gen(function* () {
      const path = "left"
      const [took, { exitCode, output }] = yield* Effect.timed(subject.run({ _tag: "LeavesBeating", path }))
      assert.deepStrictEqual([exitCode, output.stdout.text], [0, "ready\n"])
      assert.isBelow(Duration.toMillis(took), 5000)
      yield* untilBeats(subject, path, yield* beatsOf(subject, path))
    }),

  "a remaining child's output is dropped, and does not block a slow reader": ({ executor, words }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "LeavesWriting" }))
      let seen = 0
      yield* Stream.runForEach(running.output, ({ bytes }) =>
        Effect.andThen(
          Effect.sync(() => (seen += bytes.byteLength)),
          Effect.sleep("2 millis")
        )
      ).pipe(
        Effect.timeoutOrElse({ duration: "5 minutes", orElse: () => Effect.die("the output does not end") })
      )
      assert.isBelow(seen, 16 * 1024 ** 2)
      assert.deepStrictEqual(yield* running.exit, { exitCode: 0 })
    }).pipe(Effect.scoped)
}
