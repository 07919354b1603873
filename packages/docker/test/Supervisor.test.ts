/** Tests the client of the supervisor against supervisors that follow the protocol and some that violate it. */
import { assert, describe, it } from "@effect/vitest"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { type Cause, Duration, Effect, Exit, Fiber, Queue, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Supervisor from "../src/internal/container/Supervisor.ts"
import * as SupervisorFrame from "../src/internal/container/SupervisorFrame.ts"

const kinds = {
  start: 1,
  input: 2,
  inputEnd: 3,
  kill: 5,
  credit: 6,
  inputStream: 7,
  stdout: 17,
  exited: 19,
  refused: 20,
  gone: 21,
  inputCredit: 22,
  inputOver: 23
}

const frame = (kind: number, id: number, payload: Uint8Array = new Uint8Array(0)): Uint8Array => {
  const header = Buffer.alloc(9)
  header.writeUInt32BE(payload.byteLength)
  header.writeUInt8(kind, 4)
  header.writeUInt32BE(id, 5)
  return Buffer.concat([header, payload])
}

const exited = (id: number, exitCode: number) => {
  const payload = Buffer.alloc(16)
  payload.writeUInt32BE(exitCode)
  return frame(kinds.exited, id, payload)
}

const accepts = (id: number, bytes: number) => {
  const payload = Buffer.alloc(4)
  payload.writeUInt32BE(bytes)
  return frame(kinds.inputCredit, id, payload)
}

/** A channel with the test as the supervisor. With `saysGone`, it answers each kill with `Gone`. */
const channelOf = Effect.fnUntraced(function* (
  options: { readonly saysGone: boolean; readonly isRead?: boolean } = { saysGone: true }
) {
  const said = yield* Queue.unbounded<OutputChunk, Cause.Done | RuntimeUnavailable>()
  const heard: Array<{ readonly kind: number; readonly id: number; readonly payload: Buffer }> = []
  let hungUp = 0
  const supervisor = yield* Supervisor.make({
    output: Stream.fromQueue(said),
    write: (bytes) =>
      Effect.sync(() => {
        const buffer = Buffer.from(bytes)
        for (let at = 0; at < buffer.byteLength; at += 9 + buffer.readUInt32BE(at)) {
          const end = at + 9 + buffer.readUInt32BE(at)
          heard.push({
            kind: buffer.readUInt8(at + 4),
            id: buffer.readUInt32BE(at + 5),
            payload: buffer.subarray(at + 9, end)
          })
          if (options.saysGone && buffer.readUInt8(at + 4) === kinds.kill) {
            Queue.offerUnsafe(said, {
              channel: "stdout",
              bytes: frame(kinds.gone, buffer.readUInt32BE(at + 5))
            })
          }
        }
      }).pipe(Effect.andThen(options.isRead === false ? Effect.never : Effect.void)),
    hangUp: Effect.sync(() => hungUp++)
  })
  const say = (...frames: ReadonlyArray<Uint8Array>) =>
    Effect.andThen(
      Effect.forEach(frames, (bytes) => Queue.offer(said, { channel: "stdout", bytes }), { discard: true }),
      Effect.repeat(Effect.yieldNow, { times: 50 })
    )
  const complain = (text: string) =>
    Effect.andThen(
      Queue.offer(said, { channel: "stderr", bytes: Buffer.from(text) }),
      Effect.repeat(Effect.yieldNow, { times: 50 })
    )
  return {
    supervisor,
    say,
    complain,
    end: Effect.andThen(Queue.end(said), Effect.repeat(Effect.yieldNow, { times: 50 })),
    heard: (kind: number) => heard.filter((one) => one.kind === kind),
    hungUp: () => hungUp
  }
})

const command = { argv: ["x"], env: {} } as const

/** A command whose input is this number of pieces of 64 KiB, with the number of pieces taken and the end. */
const streaming = (count: number) => {
  let taken = 0
  let isOver = false
  const stdin = Stream.range(1, count).pipe(
    Stream.rechunk(1),
    Stream.map(() => {
      taken += 1
      return new Uint8Array(SupervisorFrame.inputPieceBytesMax)
    }),
    Stream.ensuring(
      Effect.sync(() => {
        isOver = true
      })
    )
  )
  return { spec: { ...command, stdin }, taken: () => taken, isOver: () => isOver }
}

describe("Supervisor", () => {
  it.effect("separates the output and the exits of concurrent commands", () =>
    Effect.gen(function* () {
      const { say, supervisor } = yield* channelOf()
      const one = yield* supervisor.exec(command)
      const other = yield* supervisor.exec(command)
      yield* say(
        frame(kinds.stdout, 2, Buffer.from("b")),
        frame(kinds.stdout, 1, Buffer.from("a")),
        exited(2, 7),
        exited(1, 0)
      )
      const text = (stream: typeof one.output) =>
        Effect.map(Stream.runCollect(stream), (all) =>
          Buffer.concat(all.map(({ bytes }) => bytes)).toString()
        )
      assert.deepStrictEqual([yield* text(one.output), yield* text(other.output)], ["a", "b"])
      assert.deepStrictEqual([(yield* one.exit).exitCode, (yield* other.exit).exitCode], [0, 7])
    }).pipe(Effect.scoped)
  )

  it.effect("returns credit only for output that was read", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      const piece = new Uint8Array(SupervisorFrame.windowBytes / 8)
      yield* say(...Array.from({ length: 8 }, () => frame(kinds.stdout, 1, piece)))
      assert.deepStrictEqual(heard(kinds.credit), [], "nothing was read yet")
      yield* Stream.runDrain(Stream.take(running.output, 5))
      const given = heard(kinds.credit).reduce((sum, { payload }) => sum + payload.readUInt32BE(), 0)
      assert.strictEqual(given, 4 * piece.byteLength)
    }).pipe(Effect.scoped)
  )

  it.effect("hangs up on a supervisor that exceeds a window", () =>
    Effect.gen(function* () {
      const { hungUp, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      const piece = new Uint8Array(SupervisorFrame.windowBytes / 4)
      yield* say(...Array.from({ length: 5 }, () => frame(kinds.stdout, 1, piece)))
      const error = yield* Effect.flip(running.exit)
      assert.include(error.message, "more output than the window allows")
      assert.strictEqual(hungUp(), 1)
    }).pipe(Effect.scoped)
  )

  it.effect("fails all running and later commands after an invalid frame", () =>
    Effect.gen(function* () {
      const { hungUp, say, supervisor } = yield* channelOf()
      const one = yield* supervisor.exec(command)
      const other = yield* supervisor.exec(command)
      yield* say(Buffer.from("HTTP/1.1 200 OK\r\n\r\n"))
      for (const told of [one.exit, other.exit, Stream.runDrain(one.output), supervisor.exec(command)]) {
        const error = yield* Effect.flip(told as Effect.Effect<unknown, Error>)
        assert.include(error.message, "invalid supervisor frame")
        assert.include(error.message, "README of @cogni/sandbox-images")
      }
      assert.strictEqual(hungUp(), 1)
    }).pipe(Effect.scoped)
  )

  it.effect("ignores frames for unknown and ended commands", () =>
    Effect.gen(function* () {
      const { hungUp, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      yield* say(
        frame(kinds.stdout, 99, Buffer.from("x")),
        exited(99, 0),
        frame(kinds.gone, 98),
        exited(1, 3)
      )
      yield* say(exited(1, 0), frame(kinds.stdout, 1, Buffer.from("late")))
      assert.strictEqual((yield* running.exit).exitCode, 3)
      assert.strictEqual(hungUp(), 0)
    }).pipe(Effect.scoped)
  )

  it.effect("does not parse the supervisor's stderr as frames", () =>
    Effect.gen(function* () {
      const { complain, hungUp, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      yield* complain("cogni-supervisor: out of memory at line 1\n")
      yield* say(exited(1, 4))
      assert.strictEqual((yield* running.exit).exitCode, 4)
      assert.strictEqual(hungUp(), 0)
    }).pipe(Effect.scoped)
  )

  it.effect("fails running and later commands when the sandbox ends", () =>
    Effect.gen(function* () {
      const { end, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      yield* end
      assert.include((yield* Effect.flip(running.exit)).message, "the sandbox has ended")
      assert.include((yield* Effect.flip(supervisor.exec(command))).message, "the sandbox has ended")
    }).pipe(Effect.scoped)
  )

  it.effect("reports where and why a command could not start", () =>
    Effect.gen(function* () {
      const { say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec({ ...command, workingDirectory: "/nowhere" })
      yield* say(frame(kinds.refused, 1, Buffer.from("No such file or directory")))
      const error = yield* Effect.flip(running.exit)
      assert.strictEqual(error._tag, "CommandRefused")
      assert.include(error.message, "/nowhere: no such file or directory")
    }).pipe(Effect.scoped)
  )

  it.effect("kills a command whose scope closes, and waits until it has ended", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf({ saysGone: false })
      const scope = yield* Scope.make()
      yield* Effect.provideService(supervisor.exec(command), Scope.Scope, scope)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(
        heard(kinds.kill).map(({ id }) => id),
        [1]
      )
      assert.isUndefined(closing.pollUnsafe(), "closing did not wait")
      yield* say(frame(kinds.gone, 1))
      yield* Fiber.join(closing)
    }).pipe(Effect.scoped)
  )

  it.effect("stops waiting for a killed command after a timeout", () =>
    Effect.gen(function* () {
      const { supervisor } = yield* channelOf({ saysGone: false })
      const scope = yield* Scope.make()
      yield* Effect.provideService(supervisor.exec(command), Scope.Scope, scope)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust(Duration.seconds(Supervisor.killSecondsMax))
      yield* Fiber.join(closing)
    }).pipe(Effect.scoped)
  )

  it.effect("does not kill or signal a command that has ended by itself", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const running = yield* supervisor.exec(command)
          yield* say(exited(1, 0))
          yield* running.exit
          yield* running.signal("SIGTERM")
        })
      )
      assert.deepStrictEqual([heard(kinds.kill), heard(4)], [[], []])
    }).pipe(Effect.scoped)
  )

  it.effect("refuses a command above the maximum of concurrent commands", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      yield* Effect.forEach(
        Array.from({ length: Supervisor.commandsConcurrentMax }),
        () => supervisor.exec(command),
        { discard: true }
      )
      const error = yield* Effect.flip(supervisor.exec(command))
      assert.strictEqual(error._tag, "CommandRefused")
      assert.strictEqual(heard(kinds.start).length, Supervisor.commandsConcurrentMax)
      yield* say(
        ...Array.from({ length: Supervisor.commandsConcurrentMax }, (_, index) => exited(index + 1, 0))
      )
      yield* Effect.scoped(supervisor.exec(command)).pipe(Effect.forkChild)
    }).pipe(Effect.scoped)
  )

  it.effect("accepts more output than one window while a reader returns credit", () =>
    Effect.gen(function* () {
      const { hungUp, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      const piece = new Uint8Array(SupervisorFrame.windowBytes / 4)
      const reading = yield* Effect.forkChild(Stream.runCount(running.output))
      for (let round = 0; round < 12; round++) yield* say(frame(kinds.stdout, 1, piece))
      yield* say(exited(1, 0))
      assert.strictEqual(yield* Fiber.join(reading), 12)
      assert.strictEqual(hungUp(), 0)
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    { what: "one-byte", payload: new Uint8Array(1) },
    { what: "empty", payload: new Uint8Array(0) }
  ])("limits the number of unread $what frames", ({ payload }) =>
    Effect.gen(function* () {
      const { hungUp, say, supervisor } = yield* channelOf()
      const framesMax = SupervisorFrame.windowBytes / SupervisorFrame.frameCostBytesMin
      const running = yield* supervisor.exec(command)
      const flood = (count: number) =>
        Buffer.concat(Array.from({ length: count }, () => frame(kinds.stdout, 1, payload)))
      yield* say(flood(framesMax))
      assert.strictEqual(hungUp(), 0, "the maximum is allowed")
      yield* say(flood(1))
      assert.include((yield* Effect.flip(running.exit)).message, "more output than the window allows")
    }).pipe(Effect.scoped)
  )

  it.effect("returns the same credit for small frames as they cost", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      const pieces = SupervisorFrame.windowBytes / SupervisorFrame.frameCostBytesMin / 4
      yield* say(...Array.from({ length: pieces }, () => frame(kinds.stdout, 1, new Uint8Array(1))))
      yield* Stream.runDrain(Stream.take(running.output, pieces))
      const given = heard(kinds.credit).reduce((sum, { payload }) => sum + payload.readUInt32BE(), 0)
      assert.strictEqual(given, SupervisorFrame.windowBytes / 4)
    }).pipe(Effect.scoped)
  )

  it.effect.each(["SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL"] as const)(
    "kills what a command leaves behind after %s",
    (name) =>
      Effect.gen(function* () {
        const { heard, say, supervisor } = yield* channelOf()
        yield* Effect.scoped(
          Effect.gen(function* () {
            const running = yield* supervisor.exec(command)
            yield* running.signal(name)
            yield* say(exited(1, 143))
            yield* running.exit
          })
        )
        assert.deepStrictEqual(
          heard(kinds.kill).map(({ id }) => id),
          [1]
        )
      }).pipe(Effect.scoped)
  )

  it.effect("does not kill what a command leaves behind after another signal", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const running = yield* supervisor.exec(command)
          yield* running.signal("SIGHUP")
          yield* say(exited(1, 0))
        })
      )
      assert.deepStrictEqual(heard(kinds.kill), [])
    }).pipe(Effect.scoped)
  )

  it.effect("accepts new commands after any number of interrupted ones", () =>
    Effect.gen(function* () {
      const { heard, supervisor } = yield* channelOf()
      const count = 2 * Supervisor.commandsConcurrentMax
      for (let index = 0; index < count; index++) {
        const cut = yield* Effect.forkChild(
          Effect.scoped(Effect.flatMap(supervisor.exec(command), ({ exit }) => exit))
        )
        yield* Effect.repeat(Effect.yieldNow, { times: index % 5 })
        yield* Fiber.interrupt(cut)
      }
      yield* supervisor.exec(command)
      assert.isAtLeast(heard(kinds.kill).length, Supervisor.commandsConcurrentMax)
    }).pipe(Effect.scoped)
  )

  it.effect("fails a waiting command when the sandbox is closed", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { supervisor } = yield* Effect.provideService(channelOf({ saysGone: false }), Scope.Scope, scope)
      const own = yield* Scope.make()
      const running = yield* Effect.provideService(supervisor.exec(command), Scope.Scope, own)
      const waiting = yield* Effect.forkChild(Effect.flip(running.exit), { startImmediately: true })
      yield* Scope.close(scope, Exit.void)
      assert.include((yield* Fiber.join(waiting)).message, "the sandbox has ended")
      // The supervisor is closed and cannot report `Gone`.
      yield* Scope.close(own, Exit.void)
    })
  )

  it.effect("stops waiting for a killed command when the sandbox ends", () =>
    Effect.gen(function* () {
      const { end, supervisor } = yield* channelOf({ saysGone: false })
      const own = yield* Scope.make()
      yield* Effect.provideService(supervisor.exec(command), Scope.Scope, own)
      const closing = yield* Effect.forkChild(Scope.close(own, Exit.void), { startImmediately: true })
      yield* end
      yield* Fiber.join(closing)
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    { number: 6, name: "SIGABRT" },
    { number: 9, name: "SIGKILL" },
    { number: 0, name: undefined },
    { number: 34, name: undefined }
  ])("reports signal $number as $name", ({ name, number }) =>
    Effect.gen(function* () {
      const { say, supervisor } = yield* channelOf()
      const running = yield* supervisor.exec(command)
      const payload = Buffer.alloc(16)
      payload.writeUInt32BE(128 + number)
      payload.writeUInt32BE(number, 4)
      yield* say(frame(kinds.exited, 1, payload))
      assert.strictEqual((yield* running.exit).signal, name)
    }).pipe(Effect.scoped)
  )

  it.effect("refuses arguments that exceed the kernel's limit without sending them", () =>
    Effect.gen(function* () {
      const { heard, supervisor } = yield* channelOf()
      const argv = ["x", ...Array.from({ length: 20 }, () => "y".repeat(100_000))] as [
        string,
        ...Array<string>
      ]
      const error = yield* Effect.flip(supervisor.exec({ argv, env: {} }))
      assert.strictEqual(error._tag, "CommandRefused")
      assert.deepStrictEqual(heard(kinds.start), [])
    }).pipe(Effect.scoped)
  )

  it.effect("refuses a command if the total input of running commands would exceed the limit", () =>
    Effect.gen(function* () {
      const { say, supervisor } = yield* channelOf()
      const half = { ...command, stdin: new Uint8Array(8 * 1024 * 1024) }
      yield* supervisor.exec(half)
      yield* supervisor.exec(half)
      const more = { ...command, stdin: new Uint8Array(1) }
      const error = yield* Effect.flip(supervisor.exec(more))
      assert.strictEqual(error._tag, "CommandRefused")
      assert.include(error.message, "input in total")
      yield* supervisor.exec(command)
      yield* say(exited(1, 0))
      yield* supervisor.exec(more)
    }).pipe(Effect.scoped)
  )

  it.effect("sends streamed input only as far as it was accepted, and then its end", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      const { isOver, spec, taken } = streaming(8)
      const running = yield* supervisor.exec(spec)
      assert.strictEqual(heard(kinds.inputStream).length, 1)
      yield* say()
      assert.deepStrictEqual([heard(kinds.input).length, taken()], [0, 0])
      yield* say(accepts(1, SupervisorFrame.windowBytes))
      assert.strictEqual(heard(kinds.input).length, 4)
      yield* say(accepts(1, 70_000))
      assert.strictEqual(heard(kinds.input).length, 5)
      assert.isFalse(isOver())
      yield* say(accepts(1, 65_536), accepts(1, 65_536), accepts(1, 65_536))
      assert.deepStrictEqual([heard(kinds.input).length, heard(kinds.inputEnd).length], [8, 1])
      assert.isTrue(isOver())
      yield* say(exited(1, 0))
      assert.strictEqual((yield* running.exit).exitCode, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("hangs up on a supervisor that accepts more input than the window, or none was announced", () =>
    Effect.gen(function* () {
      for (const [spec, frames] of [
        [streaming(0).spec, [accepts(1, SupervisorFrame.windowBytes), accepts(1, 1)]],
        [streaming(9).spec, [accepts(1, 0xffff_ffff)]],
        [command, [accepts(1, 1)]]
      ] as const) {
        const { hungUp, say, supervisor } = yield* channelOf()
        const running = yield* supervisor.exec(spec)
        yield* say(...frames)
        assert.include((yield* Effect.flip(running.exit)).message, "more input credit than the window allows")
        assert.strictEqual(hungUp(), 1)
      }
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    { what: "reads no more of it", last: frame(kinds.inputOver, 1) },
    { what: "ends", last: exited(1, 0) },
    { what: "cannot start", last: frame(kinds.refused, 1, Buffer.from("No such file or directory")) }
  ])("interrupts streamed input when its command $what", ({ last }) =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      const { isOver, spec } = streaming(1000)
      yield* supervisor.exec(spec)
      yield* say(accepts(1, SupervisorFrame.windowBytes))
      assert.isFalse(isOver())
      yield* say(last)
      assert.isTrue(isOver())
      assert.deepStrictEqual(heard(kinds.inputEnd), [], "a part is never declared to be the whole")
    }).pipe(Effect.scoped)
  )

  it.effect("kills a command before it interrupts its streamed input", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf()
      let killedBefore: number | undefined
      const stdin = Stream.never.pipe(
        Stream.ensuring(Effect.sync(() => (killedBefore = heard(kinds.kill).length)))
      )
      yield* Effect.scoped(
        Effect.andThen(supervisor.exec({ ...command, stdin }), say(accepts(1, SupervisorFrame.windowBytes)))
      )
      assert.strictEqual(killedBefore, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("interrupts streamed input when the sandbox ends", () =>
    Effect.gen(function* () {
      const { end, say, supervisor } = yield* channelOf()
      const { isOver, spec } = streaming(1000)
      const running = yield* supervisor.exec(spec)
      yield* say(accepts(1, SupervisorFrame.windowBytes))
      yield* end
      assert.isTrue(isOver())
      assert.include((yield* Effect.flip(running.exit)).message, "the sandbox has ended")
    }).pipe(Effect.scoped)
  )

  it.effect("kills a command whose supervisor cannot stream input, and names the image", () =>
    Effect.gen(function* () {
      const { heard, supervisor } = yield* channelOf()
      const { spec, taken } = streaming(10)
      const running = yield* supervisor.exec(spec)
      const exit = yield* Effect.forkChild(Effect.flip(running.exit), { startImmediately: true })
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(exit.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.include((yield* Fiber.join(exit)).message, "did not accept a stream")
      assert.deepStrictEqual([heard(kinds.kill).length, taken()], [1, 0])
    }).pipe(Effect.scoped)
  )

  it.effect("counts a stream as one window of the total input", () =>
    Effect.gen(function* () {
      const { supervisor } = yield* channelOf()
      const { spec } = streaming(1)
      const most = { ...command, stdin: new Uint8Array(16 * 1024 * 1024 - SupervisorFrame.windowBytes) }
      yield* supervisor.exec(spec)
      yield* supervisor.exec(most)
      const error = yield* Effect.flip(supervisor.exec(spec))
      assert.include(error.message, "input in total")
    }).pipe(Effect.scoped)
  )

  it.effect("sends nothing more to a supervisor that does not read, until it sends a frame", () =>
    Effect.gen(function* () {
      const { heard, say, supervisor } = yield* channelOf({ saysGone: false, isRead: false })
      const refused = (spec: Parameters<typeof supervisor.exec>[0]) =>
        Effect.flip(Effect.scoped(supervisor.exec(spec)))
      const first = yield* Effect.forkChild(refused(command))
      yield* TestClock.adjust(Duration.seconds(5 + Supervisor.killSecondsMax))
      assert.match((yield* Fiber.join(first)).message, /did not read a command/u)
      // Refused immediately and not buffered.
      const large = { ...command, stdin: new Uint8Array(1024 * 1024) }
      assert.match((yield* refused(large)).message, /did not read a command/u)
      assert.deepStrictEqual(heard(kinds.start).length, 1)
      yield* say(frame(kinds.gone, 1))
      yield* Effect.forkChild(refused(large), { startImmediately: true })
      assert.deepStrictEqual(heard(kinds.start).length, 2)
    }).pipe(Effect.scoped)
  )
})
