/** What is refused of `task` before there is an engine: in one line, with one number. */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"

const cli = (words: string) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: words.split(" "),
      environment: { COGNI_STATE_DIR: "/nowhere/at/all" }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    const { stderr, stdout } = memory.said
    return { code, stderr, stdout, help: (yield* TestConsole.logLines).join("\n") }
  })

describe("task", () => {
  it.effect.each([
    ["task", 64, "there is nothing to do"],
    ["task x --prompt-file y", 64, "two prompts"],
    ["task x y", 64, "y"],
    ["task x --steps-max 0", 64, "--steps-max"],
    ["task x --steps-max many", 64, "--steps-max"],
    ["task x --agent codex", 64, "--agent"],
    ["task x --run-id UP", 65, '--run-id "UP" is not a'],
    ["task x", 78, "COGNI_LLM_URL"],
    ["task --prompt-file /nowhere/at/all --demo", 66, "/nowhere/at/all"],
    ["task x -- ls", 64, "only run takes a command"]
  ] as const)("%s", ([words, code, says]) =>
    Effect.gen(function* () {
      const ended = yield* cli(words)
      assert.strictEqual(ended.stdout, "")
      assert.include(ended.stderr, says)
      assert.strictEqual(ended.stderr.split("\n").length, 2)
      assert.isTrue(ended.stderr.startsWith("cogni-sandbox: "))
      assert.strictEqual(ended.code, code)
    })
  )

  it.effect("says what it does, and what its numbers mean", () =>
    Effect.gen(function* () {
      const { help } = yield* cli("task --help")
      for (const word of [
        "--workspace",
        "--steps-max",
        "--patch",
        "--model",
        "120  limit: the model budget"
      ]) {
        assert.include(help, word)
      }
    })
  )
})
