/** The ID of a host, and which images it lacks. */
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { hostIdOf, runtimeProblem } from "../src/HostFacts.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-host-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

describe("the ID of a host", () => {
  it.effect("is made once for a state directory, and differs from that of another", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* directory, yield* directory]
      const first = yield* hostIdOf(join(one, "state"))
      assert.match(first!, /^[0-9a-f-]{36}$/u)
      assert.strictEqual(yield* hostIdOf(join(one, "state")), first)
      assert.notStrictEqual(yield* hostIdOf(two), first)
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("is absent if its file has something else", () =>
    Effect.gen(function* () {
      const path = yield* directory
      writeFileSync(join(path, "host-id"), "a\nb")
      assert.isUndefined(yield* hostIdOf(path))
    }).pipe(Effect.provide(NodeServices.layer))
  )
})

describe("the runtime image", () => {
  const never = { images: Result.succeed({ policy: { pull: "never" } }) } as never
  const missing = { images: Result.succeed({ policy: { pull: "missing" } }) } as never
  const digest = `example.com/runtime@sha256:${"0".repeat(64)}`
  const gone = new RuntimeUnavailable({ detail: "the engine is gone", remedy: "Start it" })

  it.effect("is described if the engine does not have it and no run would pull it", () =>
    Effect.gen(function* () {
      for (const [image, settings, imageId, says] of [
        [
          "nosuch:1",
          never,
          Effect.undefined,
          "there is no image nosuch:1 on this engine. Build it or pull it"
        ],
        ["cogni-sandbox/runtime:2", never, Effect.undefined, "./dev images --only runtime"],
        ["nosuch:1", missing, Effect.undefined, "there is no image nosuch:1"],
        [digest, missing, Effect.undefined, undefined],
        ["nosuch:1", never, Effect.succeed("sha256:0"), undefined],
        ["nosuch:1", never, Effect.fail(gone), undefined]
      ] as const) {
        const asked = { ...(settings as object), runtimeImage: image } as Parameters<typeof runtimeProblem>[1]
        const problem = yield* runtimeProblem({ imageId: () => imageId }, asked)
        if (says === undefined) assert.isUndefined(problem, image)
        else assert.include(problem, `runs that need the runtime image will fail: `)
        if (says !== undefined) assert.include(problem, says)
      }
    })
  )
})
