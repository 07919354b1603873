import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Duplex } from "node:stream"
import { reportBytesMax } from "../src/internal/container/PostureReport.ts"
import * as AttachedContainer from "../src/internal/engine/AttachedContainer.ts"

/** A held container whose stream the test ends. */
const opened = Effect.fnUntraced(function* (isWaiting: boolean) {
  const socket = new Duplex({ read: () => undefined, write: (_bytes, _encoding, done) => done() })
  const attached = yield* AttachedContainer.make({ socket, held: true, isWaiting, onEnd: () => undefined })
  yield* attached.listen
  return {
    attached,
    socket,
    write: (channel: 1 | 2, text: string) =>
      Effect.sync(() => {
        const header = Buffer.alloc(8)
        header[0] = channel
        header.writeUInt32BE(text.length, 4)
        socket.push(Buffer.concat([header, Buffer.from(text)]))
      }),
    end: Effect.andThen(
      Effect.sync(() => socket.push(null)),
      attached.ended
    )
  }
})

const waiting = opened(true)

/** Claims, and returns the error. */
const refusal = ({ claim }: Effect.Success<typeof waiting>["attached"]) =>
  Effect.map(Effect.flip(claim("claim\n", "")), ({ message }) => message)

const endedEarly = "the sandbox ended before the agent could start"

describe("AttachedContainer", () => {
  it.effect("fails a claim at once if the container ended while it waited", () =>
    Effect.gen(function* () {
      const { attached, end } = yield* waiting
      yield* end
      const claiming = yield* Effect.forkChild(refusal(attached))
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), endedEarly)
    }).pipe(Effect.scoped)
  )

  it.effect("fails a claim at once if the container ends before it reports", () =>
    Effect.gen(function* () {
      const { attached, end } = yield* waiting
      const claiming = yield* Effect.forkChild(refusal(attached), { startImmediately: true })
      yield* end
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), endedEarly)
    }).pipe(Effect.scoped)
  )

  it.effect("returns the report after a program was loaded, with all that came before it", () =>
    Effect.gen(function* () {
      const { attached, write } = yield* waiting
      const report = "cogni-posture 1\ncogni-posture end"
      yield* write(2, `${report}\n`)
      assert.strictEqual(yield* attached.report, report)
      const loading = yield* Effect.forkChild(attached.load("load\n"), { startImmediately: true })
      yield* write(2, `hello\n${report}\n`)
      assert.strictEqual(yield* Fiber.join(loading), `hello\n${report}`)
      assert.isFalse(attached.hasSpoken())
      yield* write(2, "cogni-failed socket\ncogni-start\n")
      while (!attached.hasSpoken()) yield* Effect.promise(() => new Promise<void>(setImmediate))
      const claiming = yield* Effect.forkChild(attached.claim("claim\n", ""), { startImmediately: true })
      yield* write(2, `${report}\n`)
      yield* Fiber.join(claiming)
      assert.isTrue(attached.hasSpoken())
      const going = yield* Effect.forkChild(attached.go(""), { startImmediately: true })
      yield* write(2, "cogni-start\n")
      yield* Fiber.join(going)
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    ["standard output, in many pieces", 1, "x\n", 100],
    ["standard error, more than any report has", 2, "x\n".repeat(4096), 64]
  ] as const)("hears at once that a program writes to %s", ([, channel, text, count]) =>
    Effect.gen(function* () {
      const { attached, write } = yield* waiting
      const report = "cogni-posture 1\ncogni-posture end\n"
      yield* write(2, report)
      yield* attached.report
      const loading = yield* Effect.forkChild(attached.load("load\n"), { startImmediately: true })
      for (let turn = 0; turn < count; turn++) yield* write(channel, text)
      yield* write(2, report)
      for (let turn = 0; turn < 1000 && loading.pollUnsafe() === undefined; turn++)
        yield* Effect.promise(() => new Promise<void>(setImmediate))
      assert.isDefined(loading.pollUnsafe(), "without its 130 s")
      assert.isTrue(attached.hasSpoken())
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    ["standard output", 1],
    ["standard error", 2]
  ] as const)("stops reading a container that fills %s while it waits, which ends it", ([, channel]) =>
    Effect.gen(function* () {
      const { attached, socket, write } = yield* waiting
      const report = "cogni-posture 1\ncogni-posture end\n"
      yield* write(2, report)
      yield* attached.report
      const piece = "x".repeat(1024)
      const most = reportBytesMax - report.length
      for (let bytes = 0; bytes + piece.length <= most; bytes += piece.length) yield* write(channel, piece)
      for (let turn = 0; turn < 1000; turn++) yield* Effect.promise(() => new Promise<void>(setImmediate))
      assert.isFalse(socket.destroyed, "a report may have as many bytes")
      yield* write(channel, piece)
      for (let turn = 0; turn < 1000 && !attached.hasEnded(); turn++)
        yield* Effect.promise(() => new Promise<void>(setImmediate))
      assert.isTrue(attached.hasSpoken())
      assert.isTrue(attached.hasEnded())
      assert.isTrue(socket.destroyed)
      assert.include(yield* refusal(attached), endedEarly)
    }).pipe(Effect.scoped)
  )

  it.effect("says of a program that fills standard output while it loads that it wrote too much", () =>
    Effect.gen(function* () {
      const { attached, write } = yield* waiting
      yield* write(2, "cogni-posture 1\ncogni-posture end\n")
      yield* attached.report
      const loading = yield* Effect.forkChild(Effect.flip(attached.load("load\n")), {
        startImmediately: true
      })
      yield* write(1, "x".repeat(reportBytesMax + 1))
      assert.include(
        (yield* Fiber.join(loading)).message,
        `${endedEarly}: it wrote more than ${reportBytesMax} bytes before it had a run`
      )
    }).pipe(Effect.scoped)
  )

  it.effect("reads all that a container without a wait writes before its agent starts", () =>
    Effect.gen(function* () {
      const { attached, socket, write } = yield* opened(false)
      yield* write(2, "cogni-posture 1\ncogni-posture end\n")
      yield* attached.report
      yield* write(2, "x".repeat(2 * reportBytesMax))
      yield* write(1, "y")
      for (let turn = 0; turn < 100; turn++) yield* Effect.promise(() => new Promise<void>(setImmediate))
      assert.isFalse(socket.destroyed)
      yield* attached.go("")
    }).pipe(Effect.scoped)
  )

  it.effect("gives a container 130 s to load its program, which has 120 s", () =>
    Effect.gen(function* () {
      const { attached } = yield* waiting
      const loading = yield* Effect.forkChild(Effect.flip(attached.load("load\n")))
      yield* TestClock.adjust("129 seconds")
      assert.isUndefined(loading.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.include((yield* Fiber.join(loading)).message, "did not load its program within 130 s")
    }).pipe(Effect.scoped)
  )

  it.effect("gives a container 5 s to report to its run", () =>
    Effect.gen(function* () {
      const { attached } = yield* waiting
      const claiming = yield* Effect.forkChild(refusal(attached))
      yield* TestClock.adjust("5 seconds")
      assert.include(yield* Fiber.join(claiming), "within 5 s")
    }).pipe(Effect.scoped)
  )
})
