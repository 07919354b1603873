/** Processes of a session: limits on their number, memory and read rate, and their end with the session. */
import type { RunningCommand } from "@cogni/sandbox-core/Executor"
import { emptyOutput, type OutputChunk } from "@cogni/sandbox-core/RunResult"
import { type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { CommandRefused, OomKilled, TimedOut } from "@cogni/sandbox-core/SandboxReason"
import * as ProcessTable from "../src/ProcessTable.ts"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Schema, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import { command, open } from "./ToolWorld.ts"

const KiB = 1024
const MiB = 1024 * KiB
const textBytesMax = 30_000

const failing = (reason: Reason) => Effect.fail(new SandboxError({ reason }))
const bytesOf = (text: string) => new TextEncoder().encode(text)
const chunk = (bytes: Uint8Array): OutputChunk => ({ channel: "stdout", bytes })

/** Commands with given output, counted while their scope is open. */
const executorOf = (running: Partial<RunningCommand>) => {
  const living = { count: 0 }
  const spawn = () =>
    Effect.acquireRelease(
      Effect.sync((): RunningCommand => {
        living.count++
        return {
          output: Stream.empty,
          exit: Effect.succeed({ exitCode: 0 }),
          signal: () => Effect.void,
          ...running
        }
      }),
      () => Effect.sync(() => living.count--)
    )
  return { living, executor: { spawn } }
}

const endless = { output: Stream.never, exit: Effect.never }

/** Writes the chunks, and ends with the deferred. */
const writing = (chunks: ReadonlyArray<Uint8Array>, ended: Deferred.Deferred<void>) => ({
  output: Stream.concat(
    Stream.fromIterable(chunks.map(chunk)),
    Stream.fromEffectDrain(Deferred.await(ended)) as Stream.Stream<never>
  ),
  exit: Effect.as(Deferred.await(ended), { exitCode: 0 })
})

describe("a table", () => {
  it.effect("allows 64 processes, and another when one has ended", () =>
    Effect.gen(function* () {
      const sandbox = yield* open()
      const table = yield* ProcessTable.make(sandbox)
      const waits = { command: command({ _tag: "Sleeps" }) }
      const started = yield* Effect.forEach(Array.from({ length: 64 }), () => table.start(waits), {
        concurrency: 8
      })
      assert.strictEqual(new Set(started.map(({ processId }) => processId)).size, 64)
      const refused = yield* Effect.flip(table.start(waits))
      assert.strictEqual(refused._tag, "ProcessRefused")
      assert.match(refused.message, /limit of 64 running processes.*SIGTERM/u)
      assert.isTrue(yield* table.signal("proc-7", "SIGTERM"))
      assert.containSubset(yield* table.wait("proc-7", 10), { exitCode: 143, signal: "SIGTERM" })
      assert.strictEqual((yield* table.start(waits)).processId, "proc-65")
      assert.strictEqual((yield* Effect.flip(table.start(waits)))._tag, "ProcessRefused")
    })
  )

  it.effect("enforces the limit on concurrent starts", () =>
    Effect.gen(function* () {
      const { executor, living } = executorOf(endless)
      const table = yield* ProcessTable.make(
        { spawn: () => Effect.andThen(Effect.sleep("1 second"), executor.spawn()) },
        { processesMax: 3 }
      )
      const all = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 10 }), () => Effect.exit(table.start({ command: "x" })), {
          concurrency: "unbounded"
        }),
        { startImmediately: true }
      )
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual((yield* Fiber.join(all)).filter(Exit.isSuccess).length, 3)
      assert.strictEqual(living.count, 3)
    })
  )

  it.effect("does not count a process that failed to start", () =>
    Effect.gen(function* () {
      const { executor } = executorOf(endless)
      let starts = 0
      const refusal = new CommandRefused({ detail: "no such program", remedy: "Name another" })
      const table = yield* ProcessTable.make(
        { spawn: () => (++starts <= 5 ? failing(refusal) : executor.spawn()) },
        { processesMax: 1 }
      )
      for (let index = 0; index < 5; index++) {
        assert.strictEqual((yield* Effect.flip(table.start({ command: "x" })))._tag, "SandboxError")
      }
      yield* table.start({ command: "x" })
    })
  )

  it.effect("does not count an interrupted start, and leaves no process", () =>
    Effect.gen(function* () {
      const { executor, living } = executorOf(endless)
      let slow = true
      const table = yield* ProcessTable.make(
        { spawn: () => Effect.tap(executor.spawn(), () => (slow ? Effect.never : Effect.void)) },
        { processesMax: 1 }
      )
      const starting = yield* Effect.forkChild(table.start({ command: "x" }), { startImmediately: true })
      yield* Fiber.interrupt(starting)
      assert.strictEqual(living.count, 0)
      slow = false
      yield* table.start({ command: "x" })
      assert.strictEqual(living.count, 1)
    })
  )

  it.effect("keeps ended processes, and removes the oldest", () =>
    Effect.gen(function* () {
      const sandbox = yield* open()
      const table = yield* ProcessTable.make(sandbox, { endedMax: 3 })
      yield* table.start({ command: command({ _tag: "Sleeps" }) })
      for (let exitCode = 1; exitCode <= 5; exitCode++) {
        const { processId } = yield* table.start({ command: command({ _tag: "ExitsWith", exitCode }) })
        yield* table.wait(processId, 10)
      }
      const listed = yield* table.list
      assert.deepStrictEqual(
        listed.map(({ exitCode, processId }) => [processId, exitCode]),
        [
          ["proc-1", undefined],
          ["proc-4", 3],
          ["proc-5", 4],
          ["proc-6", 5]
        ]
      )
      const forgotten = yield* Effect.flip(table.log("proc-2", { textBytesMax }))
      assert.match(forgotten.message, /no process "proc-2"/u)
    })
  )

  it.effect("ends all processes with its scope, and then starts no more", () =>
    Effect.gen(function* () {
      const { executor, living } = executorOf(endless)
      const scope = yield* Scope.make()
      const table = yield* ProcessTable.make(executor).pipe(Scope.provide(scope))
      yield* Effect.forEach(Array.from({ length: 10 }), () => table.start({ command: "x" }))
      assert.strictEqual(living.count, 10)
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(living.count, 0)
      assert.match((yield* Effect.flip(table.start({ command: "x" }))).message, /session has ended/u)
      assert.strictEqual(living.count, 0)
    })
  )

  it.effect("releases an ended process at once", () =>
    Effect.gen(function* () {
      const ended = yield* Deferred.make<void>()
      const { executor, living } = executorOf(writing([], ended))
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      assert.strictEqual(living.count, 1)
      yield* Deferred.succeed(ended, undefined)
      yield* table.wait(processId, 10)
      yield* Effect.yieldNow
      assert.strictEqual(living.count, 0)
    })
  )

  it.effect("waits no longer than the given time", () =>
    Effect.gen(function* () {
      const { executor } = executorOf(endless)
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      const waiting = yield* Effect.forkChild(table.wait(processId, 30), { startImmediately: true })
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(waiting)).state, "running")
    })
  )
})

describe("end of a process", () => {
  const endOf = Effect.fnUntraced(function* (reason: Reason) {
    const { executor } = executorOf({ output: Stream.fromEffectDrain(failing(reason)) })
    const table = yield* ProcessTable.make(executor)
    const { processId } = yield* table.start({ command: "x" })
    return yield* table.wait(processId, 10)
  })
  const partial = { exitCode: 137, output: emptyOutput, peak: {} }

  it.effect("reports the limit that was broken", () =>
    Effect.gen(function* () {
      const end = yield* endOf(new OomKilled({ memoryBytesMax: 64 * MiB, partial }))
      assert.containSubset(end, { exitCode: 137, error: { code: "OomKilled" } })
      assert.match(end.error?.message ?? "", /67108864 bytes/u)
    })
  )

  it.effect("reports a failed start, and the end of the sandbox without details of the host", () =>
    Effect.gen(function* () {
      const refused = yield* endOf(
        new CommandRefused({ detail: "there is no directory x", remedy: "Make it" })
      )
      assert.containSubset(refused, { error: { code: "CommandRefused" } })
      const lost = yield* endOf(new TimedOut({ runtimeSecondsMax: 1, partial }))
      assert.deepStrictEqual(lost.error, {
        code: "SandboxEnded",
        message: "its sandbox has ended"
      })
    })
  )

  it.effect("a defect of the executor ends the process, and frees its slot", () =>
    Effect.gen(function* () {
      const { executor, living } = executorOf({ output: Stream.die("a defect") })
      const table = yield* ProcessTable.make(executor, { processesMax: 1 })
      for (let index = 0; index < 3; index++) {
        const { processId } = yield* table.start({ command: "x" })
        assert.containSubset(yield* table.wait(processId, 10), { error: { code: "SandboxEnded" } })
      }
      yield* Effect.yieldNow
      assert.strictEqual(living.count, 0)
    })
  )
})

describe("a log", () => {
  it.effect.prop(
    "contains the end of the output, and counts the missing bytes",
    [
      Schema.Array(Schema.Literals(["a", "ü", "☃", "🦀", "line\n", "🦀🦀🦀"])).check(Schema.isMaxLength(120)),
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 9 })),
      Schema.Int.check(Schema.isBetween({ minimum: 8, maximum: 300 })),
      Schema.Int.check(Schema.isBetween({ minimum: 8, maximum: 300 }))
    ],
    ([words, pieceBytes, logBytesMax, limit]) =>
      Effect.gen(function* () {
        const ended = yield* Deferred.make<void>()
        const whole = words.join("")
        const bytes = bytesOf(whole)
        const pieces = Array.from({ length: Math.ceil(bytes.byteLength / pieceBytes) }, (_, index) =>
          bytes.subarray(index * pieceBytes, (index + 1) * pieceBytes)
        )
        const { executor } = executorOf(writing(pieces, ended))
        const table = yield* ProcessTable.make(executor, { logBytesMax })
        const { processId } = yield* table.start({ command: "x" })
        for (const end of [false, true]) {
          if (end) {
            yield* Deferred.succeed(ended, undefined)
            yield* table.wait(processId, 10)
          }
          const { droppedBytes, nextByte, process, text } = yield* table.log(processId, {
            textBytesMax: limit
          })
          assert.strictEqual(process.outputBytes, bytes.byteLength)
          assert.isTrue(whole.endsWith(text))
          assert.notInclude(text, "\uFFFD")
          assert.strictEqual(droppedBytes + bytesOf(text).byteLength, bytes.byteLength)
          assert.strictEqual(nextByte, bytes.byteLength)
          assert.isAtMost(bytesOf(text).byteLength, Math.min(limit, logBytesMax))
          assert.isAtLeast(bytesOf(text).byteLength, Math.min(limit, logBytesMax, bytes.byteLength) - 3)
        }
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 200, seed: "process-logs" } }
  )

  it.effect.prop(
    "returns everything once, in whole characters, when nextByte is followed",
    [Schema.Array(Schema.Literals(["a", "ü", "☃", "🦀", "line\n"])).check(Schema.isMaxLength(60))],
    ([words]) =>
      Effect.gen(function* () {
        const whole = words.join("")
        const ended = yield* Deferred.make<void>()
        const paced = Stream.fromIterable([...bytesOf(whole)]).pipe(
          Stream.mapEffect((byte) => Effect.as(Effect.sleep("1 second"), chunk(Uint8Array.of(byte))))
        )
        const { executor } = executorOf({
          output: Stream.concat(paced, Stream.fromEffectDrain(Deferred.await(ended))),
          exit: Effect.succeed({ exitCode: 0 })
        })
        const table = yield* ProcessTable.make(executor)
        const { processId } = yield* table.start({ command: "x" })
        let said = ""
        let afterByte = 0
        for (let index = 0; index <= bytesOf(whole).byteLength; index++) {
          const { droppedBytes, nextByte, text } = yield* table.log(processId, { afterByte, textBytesMax })
          assert.strictEqual(droppedBytes, 0)
          said += text
          afterByte = nextByte
          yield* TestClock.adjust("1 second")
        }
        assert.strictEqual(said, whole)
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 60, seed: "process-polls" } }
  )

  it.effect("is bounded, and a flood is read at one megabyte per second at most", () =>
    Effect.gen(function* () {
      let written = 0
      const piece = 32 * KiB
      const output = Stream.fromEffectRepeat(
        Effect.sync(() => {
          written += piece
          return chunk(new Uint8Array(piece).fill(120))
        })
      )
      const { executor } = executorOf({ output, exit: Effect.never })
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      for (const seconds of [0, 1, 2, 10, 60]) {
        yield* TestClock.adjust(Duration.seconds(seconds))
        const passed = { 0: 0, 1: 1, 2: 3, 10: 13, 60: 73 }[seconds]!
        const { process, text } = yield* table.log(processId, { textBytesMax: MiB })
        assert.isAtMost(process.outputBytes, (passed + 1) * MiB + piece)
        assert.isAtLeast(process.outputBytes, passed * MiB)
        // Back-pressure stops the command: its output is not buffered elsewhere.
        assert.isAtMost(written, process.outputBytes + 64 * piece)
        assert.isAtMost(text.length, 256 * KiB)
      }
    })
  )

  it.effect("reads the output of a quiet process at once", () =>
    Effect.gen(function* () {
      const output = Stream.fromIterable(["a", "b", "c"]).pipe(
        Stream.mapEffect((text) => Effect.as(Effect.sleep("10 seconds"), chunk(bytesOf(text.repeat(MiB)))))
      )
      const { executor } = executorOf({ output })
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual((yield* table.log(processId, { textBytesMax })).process.outputBytes, 3 * MiB)
    })
  )

  it.effect("limits the rate after a long silence: unused time does not accumulate", () =>
    Effect.gen(function* () {
      const piece = 32 * KiB
      const output = Stream.concat(
        Stream.fromEffectDrain(Effect.sleep("1 hour")),
        Stream.fromEffectRepeat(Effect.sync(() => chunk(new Uint8Array(piece))))
      )
      const first = Stream.make(chunk(new Uint8Array(1)))
      const { executor } = executorOf({ output: Stream.concat(first, output), exit: Effect.never })
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      yield* TestClock.adjust("1 hour")
      assert.isAtMost((yield* table.log(processId, { textBytesMax })).process.outputBytes, MiB + 2 * piece)
      yield* TestClock.adjust("1 second")
      assert.isAtMost(
        (yield* table.log(processId, { textBytesMax })).process.outputBytes,
        2 * MiB + 2 * piece
      )
    })
  )

  it.effect("holds back an incomplete character until the process ends", () =>
    Effect.gen(function* () {
      const ended = yield* Deferred.make<void>()
      const { executor } = executorOf(writing([bytesOf("a🦀").subarray(0, 4)], ended))
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      assert.containSubset(yield* table.log(processId, { textBytesMax }), {
        text: "a",
        nextByte: 1,
        droppedBytes: 0
      })
      yield* Deferred.succeed(ended, undefined)
      yield* table.wait(processId, 10)
      assert.containSubset(yield* table.log(processId, { textBytesMax }), { text: "a\uFFFD", nextByte: 4 })
      assert.containSubset(yield* table.log(processId, { afterByte: 1, textBytesMax }), {
        text: "\uFFFD",
        nextByte: 4
      })
    })
  )

  it.effect("accepts any afterByte", () =>
    Effect.gen(function* () {
      const ended = yield* Deferred.make<void>()
      const { executor } = executorOf(writing([bytesOf("hello")], ended))
      const table = yield* ProcessTable.make(executor)
      const { processId } = yield* table.start({ command: "x" })
      for (const [afterByte, text, nextByte] of [
        [0, "hello", 5],
        [2, "llo", 5],
        [5, "", 5],
        [5000, "", 5],
        [-3, "hello", 5]
      ] as const) {
        assert.containSubset(yield* table.log(processId, { afterByte, textBytesMax }), {
          text,
          nextByte,
          droppedBytes: 0
        })
      }
    })
  )
})
