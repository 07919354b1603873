/** Runs through a pool under kills, refusals and changes of its image. `./dev bench pool` does the same 1,000 times. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as PoolPlan from "../harness/pool/PoolPlan.ts"
import * as PoolTrial from "../harness/pool/PoolTrial.ts"

const seed = "pool-1"
const runs = 60

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

describe("a pool under kills, refusals and changes of its image", () => {
  it.live("serves every run right, lets no two runs have a sandbox, and leaves nothing", () =>
    Effect.gen(function* () {
      const planned = yield* PoolPlan.make({ seed, runs })
      const kinds = new Set(planned.map(({ kind }) => kind))
      assert.strictEqual(kinds.size, 6, "the plan has runs of all kinds")
      const outcome = yield* PoolTrial.run({
        seed,
        runs,
        directory: yield* directory,
        base: Images.runtime,
        secondsMax: 500
      })
      assert.deepStrictEqual(outcome.wrong, [])
      assert.deepStrictEqual(outcome.left, [])
      assert.strictEqual(outcome.shared, 0)
      assert.strictEqual(outcome.imageChanges, planned.filter((one) => one.replacesImage).length)
      assert.isAbove(outcome.imageChanges, 0)
      assert.isAbove(outcome.killed, 0)
      assert.isAbove(outcome.refused, 0)
      assert.isAbove(outcome.pool.hits, 0)
      assert.isAbove((outcome.pool.cold.workspace ?? 0) + (outcome.pool.cold.size ?? 0), 0)
    }).pipe(Effect.scoped, Effect.provide(Engine.api()))
  )

  it("finds a run that was not right", () => {
    const run = { index: 7, exitCode: 3 }
    const said = (text: string, exitCode = 3) => PoolTrial.whyWrong(run, { exitCode, text }, [1, 2])
    assert.isUndefined(said("2\nhost\n1\n7\n"))
    assert.include(said("0\nhost\n1\n7\n"), "it ran in image 0")
    assert.include(said("2\nhost\n2\n7\n"), "2 files")
    assert.include(said("2\nhost\n1\n8\n"), "printed 8")
    assert.include(said("2\nhost\n1\n7\n", 4), "ended with 4")
  })
})
