import { assert, describe, it } from "@effect/vitest"
import type { SandboxSpec } from "@cogni/sandbox-core"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as SpecFields from "@cogni/sandbox-core/SpecFields"
import { Effect } from "effect"
import * as BindingLimits from "../src/internal/BindingLimits.ts"
import * as SandboxShape from "../src/SandboxShape.ts"
import { llm } from "./Specs.ts"

const proxy = { name: "test", inspectsBodies: true, servesHost: true, tools: [], listensInMount: true }
const deaf = { ...proxy, listensInMount: false }

const asked = (input: Partial<SandboxSpec.SandboxSpecInput>, more: Partial<SandboxShape.Asked> = {}) =>
  Effect.map(
    SpecDecoder.decode({ image: "test/image", argv: ["true"], ...input }),
    (spec): SandboxShape.Asked => ({ spec, supervised: false, proxy, ...more })
  )

const reasonOf = (...given: Parameters<typeof asked>) => Effect.map(asked(...given), SandboxShape.coldReason)

describe("SandboxShape", () => {
  it.effect("starts a run cold that needs what a started sandbox cannot get, and says why", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* reasonOf({}))
      assert.isUndefined(yield* reasonOf({ llm, inputs: [{ name: "prompt.txt", content: "x" }] }))
      assert.isUndefined(yield* reasonOf({ packages: ["npm:left-pad"] }))
      const workspace = { type: "directory", path: "/srv/project" } as const
      assert.strictEqual(yield* reasonOf({ workspace }), "workspace")
      assert.isUndefined(yield* reasonOf({ workspace }, { directory: {} }), "one that can be bound")
      assert.strictEqual(yield* reasonOf({ canaries: "warn" }), "files")
      assert.strictEqual(yield* reasonOf({ packages: ["cargo:serde"] }), "files")
      assert.strictEqual(yield* reasonOf({ network: { mode: "internal", networkName: "x" } }), "network")
      assert.strictEqual(yield* reasonOf({ llm }, { proxy: deaf }), "proxy")
      assert.isUndefined(yield* reasonOf({}, { proxy: deaf }), "without a socket")
      assert.isUndefined(yield* reasonOf({ llm: { ...llm, caller: "host" } }, { proxy: deaf }))
      const argv = [SpecFields.supervisor] as const
      assert.strictEqual(yield* reasonOf({ argv }), "supervisor")
      assert.isUndefined(yield* reasonOf({ argv }, { supervised: true }))
      for (const name of [
        "NODE_OPTIONS",
        "BUN_OPTIONS",
        "PERL5OPT",
        "UV_THREADPOOL_SIZE",
        "TZ",
        "LC_ALL",
        "no_proxy"
      ]) {
        const env = { [name]: "x" }
        assert.strictEqual(yield* reasonOf({ env, preload: ["load"] }), "variables", name)
        assert.isUndefined(yield* reasonOf({ env }), "nothing is loaded")
      }
      assert.isUndefined(yield* reasonOf({ env: { OPENCODE_X: "1", PATHS: "x" }, preload: ["load"] }))
      const long = "x".repeat(BindingLimits.bindingBytesMax)
      assert.strictEqual(yield* reasonOf({ argv: ["echo", long] }), "size")
      assert.strictEqual(yield* reasonOf({ env: { LONG: long } }), "size")
      const many: SandboxSpec.SandboxSpecInput["argv"] = [
        "echo",
        ...Array.from({ length: BindingLimits.bindingTextsMax }, () => "x")
      ]
      assert.strictEqual(yield* reasonOf({ argv: many }), "size")
    })
  )

  it.effect("is the same for runs that differ only in what is bound later", () =>
    Effect.gen(function* () {
      const keyOf = (...given: Parameters<typeof asked>) =>
        Effect.map(asked(...given), (one) => SandboxShape.keyOf(SandboxShape.make(one)))
      const plain = yield* keyOf({})
      const limits = { memoryBytesMax: 2 ** 29, processesMax: 17, cpusMax: 1, runtimeSecondsMax: 5 }
      assert.strictEqual(yield* keyOf({ argv: ["other"], env: { A: "1" }, llm, limits }), plain)
      const others = [
        yield* keyOf({ image: "test/other" }),
        yield* keyOf({ memory: true }),
        yield* keyOf({}, { supervised: true }),
        yield* keyOf({ limits: { temporaryBytesMax: 2 ** 20 } }),
        yield* keyOf({ limits: { filesOpenMax: 100 } }),
        yield* keyOf({ limits: { workspaceBytesMax: 2 ** 20 } }),
        yield* keyOf({ preload: ["node", "load.mjs"] }),
        yield* keyOf({ preload: ["node load.mjs"] }),
        yield* keyOf({}, { directory: { otherUser: { userId: 7, groupId: 8 } } })
      ]
      assert.strictEqual(new Set([plain, ...others]).size, 10)
      assert.strictEqual(yield* keyOf({}, { directory: {} }), plain, "a directory of the usual user")
      const open = yield* keyOf({ preload: ["node", "load.mjs"] }, { supervised: true })
      assert.strictEqual(open, others[2], "an open sandbox loads nothing")
    })
  )
})
