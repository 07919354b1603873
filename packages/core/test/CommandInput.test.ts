/** A stream as input of a command, over a command that the test controls. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Scope, Stream } from "effect"
import * as CommandInput from "../src/CommandInput.ts"

const bytes = (text: string) => new TextEncoder().encode(text)

const settle = Effect.repeat(Effect.yieldNow, { times: 100 })

/** A command that ends when the test says so, or by SIGKILL. Records what is done to it. */
const commandOf = Effect.fnUntraced(function* (stdin: Stream.Stream<Uint8Array, unknown>) {
  const seen: Array<string> = []
  const ended = yield* Deferred.make<number>()
  const input = yield* CommandInput.make(stdin)
  if (!Stream.isStream(input.stdin)) return assert.fail("no stream")
  const exit = yield* input.feed({
    exit: Deferred.await(ended),
    // A reader has time to see what happens before the signal arrives.
    signal: (name) =>
      settle.pipe(
        Effect.andThen(Effect.sync(() => seen.push(name))),
        Effect.andThen(Deferred.succeed(ended, 137))
      )
  })
  return { seen, exit, stdin: input.stdin, end: (code: number) => Deferred.succeed(ended, code) }
})

const failing = (cause: unknown): Stream.Stream<never, unknown> => Stream.fail(cause)

/** An iterable that throws, and throws again when it is closed. */
const unclosable = Stream.fromAsyncIterable<never, unknown>(
  {
    [Symbol.asyncIterator]: () => ({
      next: async () => Promise.reject(new Error("no")),
      return: async () => Promise.reject(new Error("still no"))
    })
  },
  (thrown) => thrown
)

const collected = (stdin: Stream.Stream<Uint8Array>) =>
  Effect.map(Stream.runCollect(stdin), (pieces) => Buffer.concat(pieces).toString())

describe("CommandInput", () => {
  it.effect("passes bytes and the absence of input through", () =>
    Effect.gen(function* () {
      for (const stdin of [undefined, bytes("x")]) {
        const input = yield* CommandInput.make(stdin)
        assert.strictEqual(input.stdin, stdin)
        const exit = yield* input.feed({ exit: Effect.succeed(3), signal: () => Effect.void })
        assert.strictEqual(yield* exit, 3)
      }
    })
  )

  it.effect("delivers a stream and its end, without empty pieces", () =>
    Effect.gen(function* () {
      const { end, exit, seen, stdin } = yield* commandOf(Stream.make(bytes("a"), bytes(""), bytes("b")))
      assert.strictEqual(yield* collected(stdin), "ab")
      yield* end(0)
      assert.strictEqual(yield* exit, 0)
      assert.deepStrictEqual(seen, [])
    })
  )

  it.effect("takes a few pieces ahead of the reader, and no more", () =>
    Effect.gen(function* () {
      let taken = 0
      const source = Stream.range(1, 1000).pipe(
        Stream.rechunk(1),
        Stream.map(() => {
          taken += 1
          return bytes("x")
        })
      )
      const { stdin } = yield* commandOf(source)
      yield* settle
      assert.strictEqual(taken, CommandInput.piecesAheadMax + 1)
      assert.strictEqual((yield* collected(stdin)).length, 1000)
    })
  )

  it.effect("does not read the stream before the command has started", () =>
    Effect.gen(function* () {
      let isRead = false
      yield* CommandInput.make(Stream.fromEffectDrain(Effect.sync(() => (isRead = true))))
      yield* settle
      assert.isFalse(isRead)
    })
  )

  it.effect.each([
    { what: "fails", end: failing(new TypeError("no")), says: "failed (TypeError: no)" },
    { what: "dies", end: Stream.die("broken") as Stream.Stream<never, unknown>, says: "failed (broken)" },
    { what: "yields a text", end: Stream.make("x" as never), says: "yielded a value of type string" },
    { what: "interrupts itself", end: Stream.fromEffectDrain(Effect.interrupt), says: "failed (" },
    { what: "fails, and then cannot be closed", end: unclosable, says: "failed (Error: " },
    { what: "fails with a long text", end: failing("x".repeat(5000)), says: `(${"x".repeat(200)})` }
  ])("kills the command when the stream $what, and leaves its input open until then", ({ end, says }) =>
    Effect.gen(function* () {
      const isRead = yield* Deferred.make<void>()
      const source = Stream.make(bytes("a")).pipe(
        Stream.concat(Stream.fromEffectDrain(Deferred.await(isRead))),
        Stream.concat(end)
      )
      const { exit, seen, stdin } = yield* commandOf(source)
      const reading = yield* Stream.runForEach(stdin, (piece) => {
        seen.push(Buffer.from(piece).toString())
        return Deferred.succeed(isRead, undefined)
      }).pipe(Effect.andThen(Effect.sync(() => seen.push("end of input"))), Effect.forkChild)
      const error = yield* Effect.flip(exit)
      assert.strictEqual(error._tag, "CommandInputFailed")
      assert.include(error.message, says)
      yield* Fiber.join(reading)
      assert.deepStrictEqual(seen, ["a", "SIGKILL", "end of input"])
    })
  )

  it.effect("kills a command that has read nothing when the stream fails at once", () =>
    Effect.gen(function* () {
      const { exit, seen } = yield* commandOf(Stream.fail("no"))
      assert.strictEqual((yield* Effect.flip(exit))._tag, "CommandInputFailed")
      assert.deepStrictEqual(seen, ["SIGKILL"])
    })
  )

  it.effect.each([{ by: "the command's end" }, { by: "its reader" }, { by: "the scope" }])(
    "interrupts the stream when it is ended by $by",
    ({ by }) =>
      Effect.gen(function* () {
        const over = yield* Deferred.make<void>()
        const source = Stream.concat(Stream.make(bytes("a")), Stream.never).pipe(
          Stream.ensuring(Deferred.succeed(over, undefined))
        )
        const scope = yield* Scope.make()
        const { end, stdin } = yield* Scope.provide(commandOf(source), scope)
        yield* settle
        assert.isFalse(yield* Deferred.isDone(over))
        if (by === "the command's end") yield* end(0)
        if (by === "its reader") yield* Stream.runHead(stdin)
        if (by === "the scope") yield* Scope.close(scope, Exit.void)
        yield* Deferred.await(over)
        yield* Scope.close(scope, Exit.void)
      })
  )

  it.effect("begins and interrupts the stream of a command that ends at once", () =>
    Effect.gen(function* () {
      const seen: Array<string> = []
      const source = Stream.fromEffectDrain(
        Effect.andThen(
          Effect.sync(() => seen.push("begun")),
          Effect.never
        )
      ).pipe(Stream.ensuring(Effect.sync(() => seen.push("over"))))
      const reading = yield* Effect.scoped(
        Effect.gen(function* () {
          const { end, exit, stdin } = yield* commandOf(source)
          yield* end(0)
          yield* exit
          return stdin
        })
      )
      assert.deepStrictEqual(seen, ["begun", "over"])
      // Children of the command may still read.
      assert.strictEqual(yield* collected(reading), "")
    })
  )

  it.effect("does not fail a command that has ended when its stream cannot be closed", () =>
    Effect.gen(function* () {
      const { end, exit, seen } = yield* commandOf(Stream.ensuring(Stream.never, Effect.die("late")))
      yield* settle
      yield* end(0)
      yield* settle
      assert.strictEqual(yield* exit, 0)
      assert.deepStrictEqual(seen, [])
    })
  )

  it.effect("ends the input of those who still read it after the command's end", () =>
    Effect.gen(function* () {
      const { end, stdin } = yield* commandOf(Stream.concat(Stream.make(bytes("a")), Stream.never))
      const reading = yield* Effect.forkChild(collected(stdin))
      yield* settle
      yield* end(0)
      assert.strictEqual(yield* Fiber.join(reading), "a")
    })
  )

  it.effect("does not replace the failure of a command", () =>
    Effect.gen(function* () {
      const input = yield* CommandInput.make(Stream.never)
      const exit = yield* input.feed({ exit: Effect.fail("gone"), signal: () => Effect.void })
      const ended = yield* Effect.exit(exit)
      assert.isTrue(Exit.isFailure(ended) && Cause.hasFails(ended.cause))
    })
  )
})
