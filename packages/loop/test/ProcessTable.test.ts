/** Processes of a session: bounded in number, in memory and in what they may be read, and gone with it. */
import type { RunningCommand } from "@cogni/sandbox-core/Executor"
import { emptyOutput, type OutputChunk } from "@cogni/sandbox-core/RunResult"
import {
  CommandRefused,
  OomKilled,
  type Reason,
  SandboxError,
  TimedOut
} from "@cogni/sandbox-core/SandboxError"
import * as ProcessTable from "@cogni/sandbox-loop/ProcessTable"
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

/** Commands that write what a test says, and are counted while their scope is open. */
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

/** Ends when the deferred does, having written so much. */
const writing = (chunks: ReadonlyArray<Uint8Array>, ended: Deferred.Deferred<void>) => ({
  output: Stream.concat(
    Stream.fromIterable(chunks.map(chunk)),
    Stream.fromEffectDrain(Deferred.await(ended)) as Stream.Stream<never>
  ),
  exit: Effect.as(Deferred.await(ended), { exitCode: 0 })
})

describe("a table", () => {
  it.effect("has 64 processes and no more, says so, and has room again when one has ended", () =>
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
      assert.match(refused.message, /64 run already.*SIGTERM/u)
      assert.isTrue(yield* table.signal("proc-7", "SIGTERM"))
      assert.containSubset(yield* table.wait("proc-7", 10), { exitCode: 143, signal: "SIGTERM" })
      assert.strictEqual((yield* table.start(waits)).processId, "proc-65")
      assert.strictEqual((yield* Effect.flip(table.start(waits)))._tag, "ProcessRefused")
    })
  )

  it.effect("started at the same time, still no more", () =>
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

  it.effect("a process that could not be started takes no room", () =>
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

  it.effect("one that is interrupted while it starts takes no room, and leaves nothing", () =>
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

  it.effect("keeps those that have ended, and forgets the oldest", () =>
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

  it.effect("ends all of them with its scope, and starts none after that", () =>
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

  it.effect("lets go of one that has ended at once", () =>
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

  it.effect("waits as long as it is told, and no longer", () =>
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

describe("how a process ended", () => {
  const endOf = Effect.fnUntraced(function* (reason: Reason) {
    const { executor } = executorOf({ output: Stream.fromEffectDrain(failing(reason)) })
    const table = yield* ProcessTable.make(executor)
    const { processId } = yield* table.start({ command: "x" })
    return yield* table.wait(processId, 10)
  })
  const partial = { exitCode: 137, output: emptyOutput, peak: {} }

  it.effect("is told with the limit that it broke", () =>
    Effect.gen(function* () {
      const end = yield* endOf(new OomKilled({ memoryBytesMax: 64 * MiB, partial }))
      assert.containSubset(end, { exitCode: 137, error: { code: "OomKilled" } })
      assert.match(end.error?.message ?? "", /67108864 bytes/u)
    })
  )

  it.effect(
    "is told where it could not begin, and where its sandbox is gone, without a word of the host",
    () =>
      Effect.gen(function* () {
        const refused = yield* endOf(
          new CommandRefused({ detail: "there is no directory x", remedy: "Make it" })
        )
        assert.containSubset(refused, { error: { code: "CommandRefused" } })
        const lost = yield* endOf(new TimedOut({ runtimeSecondsMax: 1, partial }))
        assert.deepStrictEqual(lost.error, {
          code: "SandboxEnded",
          message: "the sandbox it ran in is no more"
        })
      })
  )

  it.effect("an executor with a defect loses its process, and not its place", () =>
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
    "is the end of what was printed, and what is not there is counted, in whatever pieces it came",
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
    "asked for again and again after what it gave, it gives everything once, and no character in two",
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

  it.effect("of a flood is bounded, and the flood is read no faster than a megabyte a second", () =>
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
        // The command waits for its reader: what it has written is not gathered somewhere else.
        assert.isAtMost(written, process.outputBytes + 64 * piece)
        assert.isAtMost(text.length, 256 * KiB)
      }
    })
  )

  it.effect("of one that is quiet is read at once, after a while too", () =>
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

  it.effect("of one that was quiet for long is bounded all the same: time does not add up", () =>
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

  it.effect("half a character is held back while more may come, and shown as what it is when none does", () =>
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

  it.effect("a place that is none is told as it is", () =>
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
