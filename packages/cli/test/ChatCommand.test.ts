/**
 * What is refused of `chat` before there is an engine: in one line, with one number.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "@cogni/sandbox-cli/Cli"
import * as Output from "@cogni/sandbox-cli/Output"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer } from "effect"

const chat = (file: string, model: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: ["chat", file],
      environment: { COGNI_STATE_DIR: "/nowhere/at/all", ...model }
    }).pipe(Effect.provide(memory.layer))
    const { stderr, stdout } = memory.said
    return { code, stderr, stdout }
  })

const model = { COGNI_LLM_URL: "http://127.0.0.1:1", COGNI_LLM_KEY: "k", COGNI_LLM_MODEL: "m" }

describe("chat", () => {
  it.effect("without a model nobody could answer", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/nowhere/at/all.yaml", {})
      assert.strictEqual(code, 78)
      assert.include(stderr, "no model is configured")
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("a configuration that cannot be read is said as config check says it", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* chat("/nowhere/at/all.yaml", model), {
        code: 66,
        stdout: "",
        stderr:
          "cogni-sandbox: the configuration /nowhere/at/all.yaml cannot be read: there is no such file. Write one, or name the one that there is\n"
      })
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("one that is none is told with the first that is wrong, and where all of it is told", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const file = `${yield* fs.makeTempDirectoryScoped()}/cogni.yaml`
      yield* fs.writeFileString(file, "x: 1\n")
      const { code, stderr } = yield* chat(file, model)
      assert.strictEqual(code, 65)
      assert.strictEqual(stderr.split("\n").length, 2)
      assert.include(stderr, ":1:1 x: There is no such key")
      assert.include(stderr, `See all that is wrong: cogni-sandbox config check ${file}`)
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )
})
