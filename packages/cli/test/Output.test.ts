/** Output to a terminal is visible text, whichever module writes it. Output to a pipe is unchanged. */
import { assert, describe, it } from "@effect/vitest"
import * as Output from "../src/Output.ts"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { readdirSync, readFileSync } from "node:fs"
import { Writable } from "node:stream"

/** Characters that act on a terminal: C0 except tab and line feed, DEL, C1, and marks that reorder text. */
// eslint-disable-next-line no-control-regex
const acts = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u

const hostile =
  Array.from({ length: 0xa0 }, (_, code) => String.fromCharCode(code)).join("x") +
  "\u061c\u200e\u200f\u202a\u202e\u2066\u2069 rm -rf /\rls\u001b]0;title\u0007"

const written = (terminal: boolean, of: (output: Output.Output["Service"]) => Effect.Effect<void, unknown>) =>
  Effect.gen(function* () {
    const { layer, said } = Output.makeMemory({ terminal })
    yield* Output.Output.use(of).pipe(Effect.provide(layer))
    return said
  })

describe("Output", () => {
  it.effect("makes control characters visible on a terminal: as text, as bytes, and byte by byte", () =>
    Effect.gen(function* () {
      const bytes = new TextEncoder().encode(hostile)
      for (const given of [hostile, bytes])
        assert.strictEqual((yield* written(false, (output) => output.stdout(given))).stdout, hostile)
      for (const write of ["stdout", "stderr"] as const) {
        for (const of of [
          (output: Output.Output["Service"]) => output[write](hostile),
          (output: Output.Output["Service"]) => output[write](bytes),
          (output: Output.Output["Service"]) =>
            Effect.forEach(bytes, (byte) => output[write](Uint8Array.of(byte)), { discard: true })
        ]) {
          const said = yield* written(true, of)
          assert.notMatch(said[write], acts)
          assert.include(said[write], "rm -rf /^Mls^[]0;title^G")
        }
      }
    })
  )

  it.effect("writes the same JSON value to a terminal, with control characters escaped", () =>
    Effect.gen(function* () {
      const value = { text: hostile, [hostile]: ["\u009b2J"] }
      const { layer, said } = Output.makeMemory({ terminal: true })
      yield* Output.json(value).pipe(Effect.provide(layer))
      assert.notMatch(said.stdout, acts)
      assert.deepStrictEqual(JSON.parse(said.stdout), value)
      const piped = Output.makeMemory()
      yield* Output.json(value).pipe(Effect.provide(piped.layer))
      assert.strictEqual(piped.said.stdout, `${JSON.stringify(value, undefined, 2)}\n`)
    })
  )

  it.effect(
    "waits ten seconds for a reader of messages that does not read, and without limit for one of output",
    () =>
      Effect.gen(function* () {
        // Accepts nothing.
        const stuck = () => new Writable({ write: () => undefined })
        const layer = Output.layerStreams({ stdout: stuck(), stderr: stuck() })
        yield* Effect.gen(function* () {
          const output = yield* Output.Output
          // As at the end of an interrupted command.
          const message = yield* Effect.forkChild(Effect.uninterruptible(output.stderr("· the end\n")))
          const others = yield* Effect.forEach(
            [output.stderr(new TextEncoder().encode("of the agent")), output.stdout("answer")],
            (write) => Effect.forkChild(Effect.exit(write))
          )
          yield* TestClock.adjust("9 seconds")
          assert.isUndefined(message.pollUnsafe())
          yield* TestClock.adjust("2 seconds")
          yield* Fiber.join(message)
          yield* TestClock.adjust("1 hour")
          for (const other of others) assert.isUndefined(other.pollUnsafe())
        }).pipe(Effect.provide(layer))
      })
  )

  it.effect("redraws a line of visible text, and only on a terminal", () =>
    Effect.gen(function* () {
      const said = yield* written(true, (output) => output.redraw(hostile))
      assert.isTrue(said.stderr.startsWith("\r\u001b[K"))
      assert.notMatch(said.stderr.slice(4), acts)
      assert.strictEqual((yield* written(false, (output) => output.redraw("x"))).stderr, "")
    })
  )

  it("is the one module that writes to the process's streams or knows an escape sequence", () => {
    const folder = new URL("../src/", import.meta.url)
    const offenders = readdirSync(folder)
      .filter((file) => file !== "Output.ts" && file !== "bin.ts")
      .filter((file) =>
        /process\.(?:stdout|stderr)|\bconsole\.|\bConsole\b|stdio\.(?:stdout|stderr)|\\(?:u001b|x1b|u\{1b\}|r\\u)/u.test(
          readFileSync(new URL(file, folder), "utf8")
        )
      )
    assert.deepStrictEqual(offenders, [], "write through Output")
    const json = readdirSync(folder).filter((file) =>
      /\.(?:stdout|stderr)\([^\n]*JSON\.stringify|write: output\.stdout\b/u.test(
        readFileSync(new URL(file, folder), "utf8")
      )
    )
    assert.deepStrictEqual(json, [], "write JSON with Output.json or stdoutJson")
  })
})
