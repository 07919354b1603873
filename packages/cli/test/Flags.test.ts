/** The help of commands that other programs start, and whose users read it before they can ask. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"

/** Lines about flags that take a value. */
const valued = (...command: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const before = (yield* TestConsole.logLines).length
    yield* Cli.main({
      argv: [...command, "--help"],
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all" }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    const help = (yield* TestConsole.logLines).slice(before).join("\n")
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

  it.effect("personalities edit keeps what no flag changes, and does not show the defaults of create", () =>
    Effect.gen(function* () {
      const content = (lines: ReadonlyArray<string>) =>
        lines.filter((line) => /default/u.test(line) && !/COGNI_CONFIG|default text/u.test(line))
      const edit = content(yield* valued("personalities", "edit"))
      assert.isAbove(edit.length, 6)
      assert.deepStrictEqual(
        edit.filter((line) => !line.includes("(default as it is)")),
        []
      )
      const create = content(yield* valued("personalities", "create"))
      assert.deepStrictEqual(
        create.filter((line) => line.includes("as it is")),
        []
      )
    })
  )

  it.effect("acp and run name the agent's own time limit as the default", () =>
    Effect.gen(function* () {
      for (const command of ["run", "acp"]) {
        const timeout = (yield* valued(command)).find((line) => line.includes("--timeout"))
        assert.include(timeout, "(default the agent's, or 10m)")
      }
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
