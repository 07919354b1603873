/** The tools that a caller may use: one way to find, check and call them. */
import type * as Tool from "@cogni/sandbox-loop/Tool"
import * as ToolSet from "@cogni/sandbox-loop/ToolSet"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { context, toolNamed } from "./ToolWorld.ts"

const tools = ToolSet.make([toolNamed("file__read", "called"), toolNamed("file__list", "listed")])

/** A tool that must not be called. */
const untouched: Tool.Tool = {
  ...toolNamed("file__read", "x"),
  call: () => Effect.die("it was called")
}

const problemOf = (name: string, written: string) => {
  const made = ToolSet.make([untouched]).read(name, written)
  return Result.isFailure(made)
    ? `${made.failure.code}: ${made.failure.message}`
    : assert.fail("it was accepted")
}

describe("a set of tools", () => {
  it.effect("calls a tool by its exact name, and refuses every other name alike", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* tools.call("file__read", {}, context), { mark: "called" })
      const refusals = yield* Effect.forEach(["file.read", "shell__exec", "__proto__", ""], (name) =>
        Effect.flip(tools.call(name, {}, context)).pipe(
          Effect.map(({ code, message }) => `${code} ${message.replace(JSON.stringify(name), "X")}`)
        )
      )
      assert.deepStrictEqual(
        new Set(refusals),
        new Set(["policy_denied the tool X may not be called. Allowed tools: file__read, file__list"])
      )
    })
  )

  it.effect("refuses every call if it is empty, with a short message", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(ToolSet.make([]).call("x".repeat(100_000), {}, context))
      assert.match(error.message, /^the tool "x{100}" may not be called\. No tools are allowed$/u)
    })
  )

  it("reads a model's call without calling the tool", () => {
    const read = ToolSet.make([untouched]).read("file__read", ' {"text":"x"} ')
    assert.deepStrictEqual(Result.getOrThrow(read), { tool: untouched, input: { text: "x" } })
    for (const empty of ["", " \n", "{}"]) {
      assert.deepStrictEqual(Result.getOrThrow(tools.read("file__list", empty)).input, {})
    }
  })

  it("reports a call that cannot be made: the tool, the JSON, the arguments", () => {
    assert.match(problemOf("file__write", "{"), /^policy_denied: the tool "file__write"/u)
    assert.match(problemOf("file__read", "{"), /^invalid_json: .*Send one object/u)
    assert.match(problemOf("file__read", "[]"), /^validation: the arguments are not a JSON object/u)
    assert.match(problemOf("file__read", '{"text":1}'), /^validation: text: Expected string/u)
  })
})
