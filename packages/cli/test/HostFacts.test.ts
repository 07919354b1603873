/** The ID of a host, and which images it lacks. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { hostIdOf } from "../src/HostFacts.ts"

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
