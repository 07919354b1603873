import { assert, describe, it } from "@effect/vitest"
import { type RunEvent, SandboxRunner } from "@cogni/sandbox-core"
import * as Await from "../../../test/harness/Await.ts"
import { Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { forever, hello, leftovers, llm, record, runner, spec } from "./Specs.ts"

describe("SandboxRunner.stream", () => {
  const stream = (input = spec) =>
    Stream.unwrap(SandboxRunner.SandboxRunner.useSync((runner) => runner.stream(input)))
  const tags = (events: ReadonlyArray<RunEvent.RunEvent>) => events.map((event) => event._tag)

  it.effect("emits events in order: RunStarted first, RunEnded last, both once", () =>
    Effect.gen(function* () {
      const events = yield* Stream.runCollect(stream({ ...spec, llm }))
      assert.strictEqual(events[0]?._tag, "RunStarted")
      const last = events.at(-1)
      if (last?._tag !== "RunEnded") return assert.fail(last?._tag)
      assert.lengthOf(
        events.filter(({ _tag }) => _tag === "RunStarted" || _tag === "RunEnded"),
        2
      )
      const phases = events.flatMap((event) => (event._tag === "PhaseEnded" ? [event.phase] : []))
      assert.deepStrictEqual(
        phases,
        last.result.timings.map(({ phase }) => phase)
      )
      const at = (tag: RunEvent.RunEvent["_tag"]) => tags(events).indexOf(tag)
      assert.isBelow(at("PostureVerified"), at("OutputReceived"))
      assert.strictEqual(last.result.output.stdout.text, "hello\n")
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(Effect.provide(runner({ program: hello })))
  )

  it.effect("emits RunEnded after everything is released", () =>
    Effect.gen(function* () {
      const left = yield* stream().pipe(
        Stream.filter(({ _tag }) => _tag === "RunEnded"),
        Stream.mapEffect(() => leftovers()),
        Stream.runCollect
      )
      assert.deepStrictEqual(left, [[]])
    }).pipe(Effect.provide(runner({ program: hello })))
  )

  it.effect("emits output while the agent runs", () =>
    Effect.gen(function* () {
      const first = yield* stream().pipe(
        Stream.filter((event) => event._tag === "OutputReceived"),
        Stream.take(1),
        Stream.runCollect
      )
      assert.strictEqual(new TextDecoder().decode(first[0]?.bytes), "so far\n")
    }).pipe(Effect.provide(runner({ program: forever })))
  )

  it.effect("fails with the run's error, after the events before it", () =>
    Effect.gen(function* () {
      const seen: Array<RunEvent.RunEvent> = []
      const fiber = yield* stream({ ...spec, limits: { runtimeSecondsMax: 5 } }).pipe(
        Stream.runForEach((event) => Effect.sync(() => seen.push(event))),
        Effect.flip,
        Effect.forkChild
      )
      yield* Await.ended(fiber, 30)
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(error.reason._tag, "TimedOut")
      assert.strictEqual(seen[0]?._tag, "RunStarted")
      assert.include(tags(seen), "OutputReceived")
      assert.notInclude(tags(seen), "RunEnded")
    }).pipe(Effect.provide(runner({ program: forever })))
  )

  it.effect("emits no events for a refused spec", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Stream.runCollect(stream({ ...spec, image: "" })))
      assert.strictEqual(error.reason._tag, "InvalidSpec")
    }).pipe(Effect.provide(runner()))
  )

  it.effect.each([1, 2, 3, 4, 5, 6, 7])(
    "ends the run and leaves nothing behind when abandoned after %s events",
    (count) =>
      Effect.gen(function* () {
        const events = yield* Stream.runCollect(Stream.take(stream({ ...spec, llm }), count))
        assert.lengthOf(events, count)
        assert.deepStrictEqual(yield* leftovers(), [])
        const kept = yield* record()
        if (kept !== undefined) assert.deepStrictEqual(kept.outcome, { status: "interrupted" })
      }).pipe(Effect.provide(runner({ program: forever })))
  )

  it.effect.each(Array.from({ length: 24 }, (_, count) => count))(
    "removes the container of a reader that stops reading, after %s pieces of output",
    (count) =>
      Effect.gen(function* () {
        yield* stream({ ...spec, limits: { runtimeSecondsMax: 5 } }).pipe(
          Stream.runForEach(() => Effect.never),
          Effect.forkChild
        )
        for (let seconds = 0; seconds < 400; seconds += 5) yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(yield* leftovers(), [])
        assert.notStrictEqual((yield* record())?.outcome.status, "running")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) =>
              Effect.as(
                Effect.forEach(Array.from({ length: count }), () => stdout("x"), { discard: true }),
                0
              )
          })
        )
      )
  )

  it.effect("delivers everything to a slow reader", () =>
    Effect.gen(function* () {
      const fiber = yield* stream().pipe(
        Stream.mapEffect((event) => Effect.as(Effect.sleep("1 second"), event)),
        Stream.runCollect,
        Effect.forkChild
      )
      yield* Await.ended(fiber, 400)
      const events = yield* Fiber.join(fiber)
      const bytes = events.reduce(
        (sum, event) => sum + (event._tag === "OutputReceived" ? event.bytes.byteLength : 0),
        0
      )
      assert.strictEqual(bytes, 200)
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stdout }) =>
            Effect.as(
              Effect.forEach(Array.from({ length: 200 }), () => stdout("x"), { discard: true }),
              0
            )
        })
      )
    )
  )
})
