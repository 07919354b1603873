/** Tests the log of a command as text and as JSON. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import * as LogFormat from "../src/LogFormat.ts"
import * as Output from "../src/Output.ts"

const logged = (format: "text" | "json") =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const output = yield* Effect.provide(Output.Output, memory.layer)
    yield* Effect.logInfo("run run-1 ended\nlevel=forged").pipe(
      Effect.annotateLogs({ "sandbox.run.id": "run-1", level: "forged", "sandbox.run.attempt": 0 }),
      Effect.provide(Logger.layer([LogFormat.logger(output, format)]))
    )
    yield* Effect.yieldNow
    return memory.said.stderr
  })

describe("LogFormat", () => {
  it.effect("writes a line for people", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* logged("text"), "· info: run run-1 ended level=forged\n")
    })
  )

  it.effect("writes one object a line, whose level and message no annotation replaces", () =>
    Effect.gen(function* () {
      const text = yield* logged("json")
      assert.strictEqual(text.trimEnd().split("\n").length, 1)
      assert.deepStrictEqual(JSON.parse(text), {
        "sandbox.run.id": "run-1",
        "sandbox.run.attempt": 0,
        time: "1970-01-01T00:00:00.000Z",
        level: "INFO",
        message: "run run-1 ended level=forged"
      })
    })
  )

  it.effect("converts everything else on standard error to such objects", () =>
    Effect.gen(function* () {
      const memory = Output.makeMemory()
      const output = LogFormat.inJson(yield* Effect.provide(Output.Output, memory.layer))
      yield* output.stderr("listening on http://127.0.0.1:8787\n· a note\n\n")
      yield* output.stderr("cogni-sandbox: it failed\n")
      assert.deepStrictEqual(
        memory.said.stderr
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line))
          .map(({ level, message }) => [level, message]),
        [
          ["INFO", "listening on http://127.0.0.1:8787"],
          ["INFO", "a note"],
          ["ERROR", "cogni-sandbox: it failed"]
        ]
      )
    })
  )

  it("knows the commands that stay, which export their log lines", () => {
    const commands = ["acp", "chat", "mcp", "serve", "run", "top", undefined]
    assert.deepStrictEqual(commands.filter(LogFormat.isStaying), ["acp", "chat", "mcp", "serve"])
  })

  it("logs the states of runs only in commands that stay, unless they are quiet", () => {
    assert.strictEqual(LogFormat.levelOf(["serve"]), "Info")
    assert.strictEqual(LogFormat.levelOf(["chat", "a.yaml", "-q"]), "Warn")
    assert.strictEqual(LogFormat.levelOf(["run", "hello"]), "Warn")
  })
})
