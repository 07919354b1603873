/** Progress on a terminal, without a terminal, and with `--quiet`. */
import { assert, describe, it } from "@effect/vitest"
import * as Output from "../src/Output.ts"
import * as Progress from "../src/Progress.ts"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

const erase = "\r\u001b[K"

const shown = (options: { readonly terminal: boolean; readonly quiet: boolean }) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory({ terminal: options.terminal })
    yield* Effect.gen(function* () {
      const progress = yield* Progress.make({ quiet: options.quiet })
      yield* progress.now("working\u001b[2J")
      yield* TestClock.adjust("200 millis")
      yield* progress.note("half way")
      yield* TestClock.adjust("1100 millis")
      yield* progress.rest
      const before = memory.said.stderr.length
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(memory.said.stderr.length, before, "it is stopped")
    }).pipe(Effect.scoped, Effect.provide(memory.layer))
    assert.strictEqual(memory.said.stdout, "")
    return memory.said.stderr
  })

describe("Progress", () => {
  it.effect("prints lines without control characters if there is no terminal", () =>
    Effect.map(shown({ terminal: false, quiet: false }), (said) => assert.strictEqual(said, "· half way\n"))
  )

  it.effect("repeats what goes on every 30 seconds if there is no terminal, until other output follows", () =>
    Effect.gen(function* () {
      const memory = Output.makeMemory({ terminal: false })
      yield* Effect.gen(function* () {
        const progress = yield* Progress.make({ quiet: false })
        yield* TestClock.adjust("31 seconds")
        assert.strictEqual(memory.said.stderr, "", "there is nothing to say yet")
        yield* progress.now("the agent is\nworking\u001b[2J")
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(
          memory.said.stderr,
          "· the agent is working^[[2J (1 m 0 s)\n· the agent is working^[[2J (1 m 30 s)\n"
        )
        yield* progress.rest
        yield* TestClock.adjust("5 minutes")
        yield* progress.note("done")
      }).pipe(Effect.scoped, Effect.provide(memory.layer))
      assert.isTrue(memory.said.stderr.endsWith("(1 m 30 s)\n· done\n"))
    })
  )

  it.effect("shows a spinner with the elapsed time on a terminal, and erases it before other output", () =>
    Effect.map(shown({ terminal: true, quiet: false }), (said) => {
      assert.include(said, `${erase}⠙ working^[[2J`)
      assert.include(said, `${erase}· half way\n`)
      assert.include(said, "(1.2 s)")
      assert.isTrue(said.endsWith(erase))
    })
  )

  it.effect("prints nothing with --quiet", () =>
    Effect.gen(function* () {
      for (const terminal of [true, false]) assert.strictEqual(yield* shown({ terminal, quiet: true }), "")
    })
  )
})
