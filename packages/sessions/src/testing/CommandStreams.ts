/**
 * Executor contract: a stream as standard input. It arrives while the command runs and at its pace, it ends with the
 * command, and its failure is never taken for its end.
 */
import type { RunningCommand } from "@cogni/sandbox-core/Executor"
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber, Queue, Stream } from "effect"
import { type Promises, reasonOf, until, untilReady } from "./CommandSubject.ts"

const bytesOf = (text: string) => new TextEncoder().encode(text)

/** Collects the standard output of a command while it runs. */
const heard = Effect.fnUntraced(function* (running: RunningCommand) {
  let text = ""
  yield* Stream.runForEach(running.output, ({ bytes, channel }) =>
    Effect.sync(() => {
      if (channel === "stdout") text += new TextDecoder().decode(bytes)
    })
  ).pipe(Effect.forkScoped)
  return {
    text: () => text,
    until: (words: string) =>
      until(
        `the command writes ${JSON.stringify(words)}`,
        Effect.sync(() => text.includes(words))
      )
  }
})

const pieceBytes = 64 * 1024

/** A stream of `count` pieces, which counts those that were taken and reports its end. */
const counting = (count: number) => {
  const over = Deferred.makeUnsafe<void>()
  let taken = 0
  const stream = Stream.range(1, count).pipe(
    Stream.rechunk(1),
    Stream.map(() => {
      taken += 1
      return new Uint8Array(pieceBytes)
    }),
    Stream.ensuring(Deferred.succeed(over, undefined))
  )
  return { stream, taken: () => taken, over: Deferred.await(over) }
}

/** A stream that never yields anything, and reports its end. */
const silent = () => {
  const over = Deferred.makeUnsafe<void>()
  return {
    stream: Stream.ensuring(Stream.never, Deferred.succeed(over, undefined)),
    over: Deferred.await(over)
  }
}

/** Waits until the number of taken pieces stays the same for half a second. */
const settled = Effect.fnUntraced(function* (taken: () => number) {
  let same = 0
  let last = -1
  yield* until(
    "the stream is paused",
    Effect.sync(() => {
      same = taken() > 0 && taken() === last ? same + 1 : 0
      last = taken()
      return same === 25
    })
  )
  return last
})

export const streams: Promises = {
  "arrives while the command runs, and then ends": ({ executor, words }) =>
    Effect.gen(function* () {
      const lines = yield* Queue.make<Uint8Array>()
      const running = yield* executor.spawn(words.argv({ _tag: "AnswersLines" }), {
        stdin: Stream.takeWhile(Stream.fromQueue(lines), ({ byteLength }) => byteLength > 0)
      })
      const said = yield* heard(running)
      yield* Queue.offer(lines, bytesOf("one\n"))
      yield* said.until("got one\n")
      yield* Queue.offer(lines, bytesOf("two\nthr"))
      yield* said.until("got two\n")
      assert.strictEqual(said.text(), "got one\ngot two\n")
      yield* Queue.offer(lines, bytesOf("ee\n"))
      yield* Queue.offer(lines, new Uint8Array(0))
      assert.strictEqual((yield* running.exit).exitCode, 0)
      yield* said.until("end\n")
      assert.strictEqual(said.text(), "got one\ngot two\ngot three\nend\n")
    }).pipe(Effect.scoped),

  "arrives in full and in order, whatever the size of its pieces": ({ executor, words }) =>
    Effect.gen(function* () {
      const whole = Uint8Array.from({ length: 3 * 1024 ** 2 + 5 }, (_, at) => (at * 31 + (at >> 8)) & 0xff)
      const sizes = [1, 0, 7, 65_536, 65_537, 700_000, 0]
      const pieces: Array<Uint8Array> = []
      for (let at = 0; at < whole.byteLength;) {
        const size = sizes[pieces.length % sizes.length]!
        pieces.push(whole.subarray(at, at + size))
        at += size
      }
      const running = yield* executor.spawn(words.argv({ _tag: "EchoesStdin" }), {
        stdin: Stream.fromIterable(pieces)
      })
      const chunks = yield* Stream.runCollect(running.output)
      assert.isTrue(Buffer.concat(chunks.map(({ bytes }) => bytes)).equals(whole))
      assert.strictEqual((yield* running.exit).exitCode, 0)
    }).pipe(Effect.scoped),

  "is empty if it ends at once": ({ run }) =>
    Effect.gen(function* () {
      for (const stdin of [Stream.empty, Stream.make(new Uint8Array(0))]) {
        const { exitCode, output } = yield* run({ _tag: "CountsStdin" }, { stdin })
        assert.deepStrictEqual([exitCode, output.stdout.text.trim()], [0, "0"])
      }
    }),

  "is paused by a command that does not read, and has no limit in total": ({ executor, words }) =>
    Effect.gen(function* () {
      const path = "streams/go"
      const { stream, taken } = counting(400)
      const running = yield* executor.spawn(words.argv({ _tag: "CountsStdinLater", path }), { stdin: stream })
      const said = yield* heard(running)
      // Pieces on their way: those taken ahead, a window, and the buffers of the kernel.
      assert.isBelow(yield* settled(taken), 32)
      yield* executor.files.write(path, "")
      assert.strictEqual((yield* running.exit).exitCode, 0)
      yield* said.until("\n")
      assert.strictEqual(Number(said.text()), 400 * pieceBytes)
    }).pipe(Effect.scoped),

  "is interrupted by a command that ends before it has read everything": ({ run }) =>
    Effect.gen(function* () {
      for (let round = 0; round < 10; round++) {
        const { over, stream, taken } = counting(100_000)
        const { exitCode, output } = yield* run({ _tag: "ReadsSome", bytes: 10 }, { stdin: stream })
        assert.deepStrictEqual([exitCode, output.stdout.text.trim()], [0, "10"])
        yield* over
        assert.isBelow(taken(), 1000)
        const ended = yield* run({ _tag: "ExitsWith", exitCode: 3 }, { stdin: counting(100_000).stream })
        assert.strictEqual(ended.exitCode, 3)
      }
    }),

  "is interrupted by a command that ends while nothing arrives": ({ run }) =>
    Effect.gen(function* () {
      const { over, stream } = silent()
      assert.strictEqual((yield* run({ _tag: "ExitsWith", exitCode: 4 }, { stdin: stream })).exitCode, 4)
      yield* over
    }),

  "is interrupted by a command that closes its input and continues": ({ executor, words }) =>
    Effect.gen(function* () {
      const { over, stream } = counting(100_000)
      const running = yield* executor.spawn(words.argv({ _tag: "ClosesStdin" }), { stdin: stream })
      yield* untilReady(running)
      yield* over
      yield* running.signal("SIGKILL")
      assert.strictEqual((yield* running.exit).signal, "SIGKILL")
    }).pipe(Effect.scoped),

  "ends for the children of a command that has ended": (subject) =>
    Effect.gen(function* () {
      const path = "streams/read"
      yield* subject.executor.files.write("streams/directory", "")
      const { exitCode } = yield* subject.run({ _tag: "LeavesReading", path }, { stdin: silent().stream })
      assert.strictEqual(exitCode, 0)
      yield* until(
        "the child has read its input",
        Effect.map(Effect.exit(subject.executor.files.stat(path)), ({ _tag }) => _tag === "Success")
      )
    }),

  "is interrupted with its command, even while it is open or paused": ({ executor, run, words }) =>
    Effect.gen(function* () {
      for (const make of [silent, () => counting(100_000)]) {
        const { over, stream } = make()
        const running = yield* Effect.forkChild(run({ _tag: "Sleeps" }, { stdin: stream }), {
          startImmediately: true
        })
        yield* Effect.sleep("200 millis")
        yield* Fiber.interrupt(running)
        yield* over
        const closed = make()
        yield* Effect.scoped(
          Effect.flatMap(executor.spawn(words.argv({ _tag: "Sleeps" }), { stdin: closed.stream }), untilReady)
        )
        yield* closed.over
        const late = make()
        const reason = yield* reasonOf(
          run({ _tag: "Sleeps" }, { stdin: late.stream, timeoutSecondsMax: 0.5 })
        )
        assert.strictEqual(reason._tag, "CommandTimedOut")
        yield* late.over
      }
      assert.strictEqual((yield* run({ _tag: "ExitsWith", exitCode: 6 })).exitCode, 6)
    }),

  "kills the command if it fails, and is not taken for a complete input": ({ executor, run, words }) =>
    Effect.gen(function* () {
      const failing: ReadonlyArray<readonly [string, Stream.Stream<Uint8Array, unknown>]> = [
        ["Error: the source broke", Stream.fail(new Error("the source broke"))],
        ["the source died", Stream.die("the source died")],
        ["type string", Stream.make("text" as unknown as Uint8Array)]
      ]
      for (const [why, end] of failing) {
        const isAnswered = yield* Deferred.make<void>()
        const stdin = Stream.make(bytesOf("one\n")).pipe(
          Stream.concat(Stream.fromEffectDrain(Deferred.await(isAnswered))),
          Stream.concat(end),
          Stream.concat(Stream.make(bytesOf("never\n")))
        )
        const running = yield* executor.spawn(words.argv({ _tag: "AnswersLines" }), { stdin })
        const said = yield* heard(running)
        yield* said.until("got one\n")
        yield* Deferred.succeed(isAnswered, undefined)
        const reason = yield* reasonOf(running.exit)
        assert.strictEqual(reason._tag, "CommandInputFailed")
        assert.include(reason.message, why)
        assert.strictEqual(said.text(), "got one\n")
      }
      const error = yield* reasonOf(run({ _tag: "Sleeps" }, { stdin: Stream.fail("at once") }))
      assert.strictEqual(error._tag, "CommandInputFailed")
      assert.strictEqual((yield* run({ _tag: "ExitsWith", exitCode: 5 })).exitCode, 5)
    }).pipe(Effect.scoped),

  "does not delay other commands while it is paused": ({ executor, run, words }) =>
    Effect.gen(function* () {
      const path = "streams/others"
      const paused = counting(200)
      const waiting = yield* executor.spawn(words.argv({ _tag: "CountsStdinLater", path }), {
        stdin: paused.stream
      })
      const said = yield* heard(waiting)
      yield* settled(paused.taken)
      const totals = yield* Effect.forEach(
        Array.from({ length: 8 }, (_, index) => index + 1),
        (count) => run({ _tag: "CountsStdin" }, { stdin: counting(count * 10).stream }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        totals.map(({ output }) => Number(output.stdout.text)),
        totals.map((_, index) => (index + 1) * 10 * pieceBytes)
      )
      yield* executor.files.write(path, "")
      yield* waiting.exit
      yield* said.until("\n")
      assert.strictEqual(Number(said.text()), 200 * pieceBytes)
    }).pipe(Effect.scoped)
}
