import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core"
import { Tool } from "@cogni/sandbox-loop"
import { Effect, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"

const context: Tool.ToolContext = {
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  identity: { billingAccountId: "acct", attempt: 0 },
  requestId: "r1"
}

const greet = (
  execute: (input: { readonly name: string }) => Effect.Effect<string, Tool.ToolFailed> = ({ name }) =>
    Effect.succeed(`hello, ${name}`)
) =>
  Tool.make({
    name: "test__greet",
    description: "Says hello",
    effect: "read_only",
    input: Schema.Struct({ name: Schema.String }),
    output: Schema.String,
    runtimeSecondsMax: 5,
    resultBytesMax: 100,
    execute
  })

const fails = (tool: Tool.Tool, input: unknown) => Effect.flip(tool.call(input, context))

describe("Tool", () => {
  it.effect("decodes its input and encodes its output", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* greet().call({ name: "you" }, context), "hello, you")
    })
  )

  it("describes its arguments with a JSON Schema of an object", () => {
    const { properties, type } = greet().inputSchema
    assert.strictEqual(type, "object")
    assert.deepStrictEqual(Object.keys(properties as object), ["name"])
  })

  it.effect("refuses wrong, missing and unknown arguments by name", () =>
    Effect.gen(function* () {
      for (const [input, word] of [
        [{ name: 1 }, /name/u],
        [{}, /name/u],
        [{ name: "x", other: 1 }, /other/u],
        [null, /./u],
        ["x", /./u]
      ] as const) {
        const error = yield* fails(greet(), input)
        assert.strictEqual(error.code, "validation")
        assert.match(error.message, word)
      }
    })
  )

  it.effect("interrupts a call at its time limit, and reports it", () =>
    Effect.gen(function* () {
      let interrupted = false
      const slow = greet(() =>
        Effect.onInterrupt(Effect.never, () =>
          Effect.sync(() => {
            interrupted = true
          })
        )
      )
      const fiber = yield* Effect.forkChild(fails(slow, { name: "x" }), { startImmediately: true })
      yield* TestClock.adjust("5 seconds")
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(error.code, "timeout")
      assert.match(error.message, /5 s/u)
      assert.isTrue(interrupted)
    })
  )

  it.effect("reports a defect to the agent without its cause", () =>
    Effect.gen(function* () {
      const error = yield* fails(
        greet(() => Effect.die(new Error("secret of the host"))),
        { name: "x" }
      )
      assert.strictEqual(error.code, "execution")
      assert.notInclude(error.message, "secret")
    })
  )

  it.effect("reports a result over its limit instead of cutting it", () =>
    Effect.gen(function* () {
      const error = yield* fails(
        greet(() => Effect.succeed("x".repeat(200))),
        { name: "x" }
      )
      assert.strictEqual(error.code, "execution")
      assert.match(error.message, /202 bytes, over its limit of 100/u)
    })
  )
})
