/** The help of commands that other programs start, and whose users read it before they can ask. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"

/** Lines about flags that take a value. */
const valued = (command: string) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    yield* Cli.main({ argv: [command, "--help"], environment: { COGNI_STATE_DIR: "/nowhere/at/all" } }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    const help = (yield* TestConsole.logLines).join("\n")
    const flags = help.slice(help.indexOf("\nFLAGS"), help.indexOf("\nGLOBAL FLAGS"))
    return flags.split("\n").filter((line) => /^ +--[a-z-]+(?:, -[a-z])? \S+ {2,}\S/u.test(line))
  })

describe("help", () => {
  it.effect.each(["serve", "chat", "mcp", "acp"])(
    "%s names the default of each flag that takes a value",
    (command) =>
      Effect.gen(function* () {
        const lines = yield* valued(command)
        assert.isAbove(lines.length, 4)
        assert.deepStrictEqual(
          lines.filter((line) => !/\(default\b/u.test(line)),
          [],
          "end the description with (default VALUE), or (default none)"
        )
      })
  )

  it.effect.each(["serve", "chat", "mcp", "acp"])("%s shows the unit of each quantity", (command) =>
    Effect.gen(function* () {
      const quantities = (yield* valued(command)).filter((line) => / (?:SIZE|DURATION) {2}/u.test(line))
      assert.deepStrictEqual(
        quantities.filter((line) => !/such as \d+[a-z]/u.test(line)),
        [],
        "add an example: such as 90s, or 512m"
      )
    })
  )
})
