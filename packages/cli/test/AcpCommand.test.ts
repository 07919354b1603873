/** `acp` before it serves: mistakes that the user of the command must see, not the first prompt. */
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"

const upstream = {
  COGNI_LLM_URL: "http://127.0.0.1:9",
  COGNI_LLM_KEY: "sk-planted-0123456789",
  COGNI_BILLING_ACCOUNT: "acct"
}

describe("acp", () => {
  it.live.each([
    ["an unknown agent", ["--agent", "nobody", "--demo"], {}, 66, /there is no agent nobody/u],
    ["no model", [], {}, 78, /no model is configured/u],
    ["an upstream without a model", [], upstream, 78, /no model is named/u],
    ["an unknown kind of files", ["--workspace", "."], upstream, 64, /workspace/u],
    ["a personality that the agent does not have", ["--demo", "--personality", "x"], {}, 64, /personalit/u],
    ["a budget without a limit", ["--demo", "--stop-when-spent"], {}, 64, /needs a budget/u],
    ["a limit out of bounds", ["--demo", "--memory", "1k"], {}, 65, /--memory/u],
    ["a clone for an agent without tools", ["--demo", "--workspace", "clone"], {}, 64, /calls no tools/u],
    ["a depth without a clone", ["--demo", "--depth", "3"], {}, 64, /without --workspace clone/u],
    ["an argument", ["prompt"], {}, 64, /./u]
  ] as const)("refuses %s before it serves", ([, argv, environment, exit, words]) =>
    Effect.gen(function* () {
      const memory = Output.makeMemory()
      const code = yield* Cli.main({
        argv: ["acp", ...argv],
        environment: { COGNI_STATE_DIR: "/nonexistent", ...environment }
      }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
      assert.match(memory.said.stderr, words)
      assert.strictEqual(code, exit, memory.said.stderr)
      assert.strictEqual(memory.said.stdout, "", "standard output is only for the protocol")
      assert.notInclude(memory.said.stderr, "planted")
    })
  )
})
