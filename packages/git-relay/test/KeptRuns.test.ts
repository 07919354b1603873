/** The files that a relay keeps, on a real disk. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { BranchName } from "../src/Refs.ts"
import * as KeptRuns from "../src/internal/steps/KeptRuns.ts"

const runId = RunId.RunId.make("run-keptruns0001")

const owner = { bootId: "boot", processId: 1, startTicks: 1 }

const acquire = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => fs.mkdtemp(path.join(os.tmpdir(), "cogni-kept-"))),
    (made) => Effect.promise(() => fs.rm(made, { recursive: true, force: true }))
  )
  return {
    directory,
    kept: KeptRuns.make({ directory, owners: { self: () => owner, liveness: () => "dead" } })
  }
})

/** A run's directory that is older than any that another process may be creating. */
const plant = (directory: string, state: string | undefined) =>
  Effect.promise(async () => {
    const own = path.join(directory, runId)
    await fs.mkdir(own)
    if (state !== undefined) await fs.writeFile(path.join(own, "state.json"), state)
    await fs.utimes(own, new Date(0), new Date(0))
    return own
  })

describe("KeptRuns", () => {
  it.effect.each([
    ["truncated", '{"version":1,"runId":"run-'],
    ["of another version", JSON.stringify({ version: 2, runId })],
    ["empty", ""]
  ])("never removes a run whose state is %s", ([, state]) =>
    Effect.gen(function* () {
      const { directory, kept } = yield* acquire
      const own = yield* plant(directory, state)
      assert.deepStrictEqual(yield* kept.list, [])
      assert.isTrue(existsSync(own), "its commits are lost")
      const branch = BranchName.make("sandbox/kept")
      const error = yield* Effect.flip(
        kept.claim({
          runId,
          url: "u",
          branch,
          workspaceBranch: branch,
          canaries: [],
          createPr: false,
          depth: 1
        })
      )
      assert.include(error.message, "state.json")
      assert.isTrue(existsSync(own))
    })
  )

  it.effect("removes an old directory without a state", () =>
    Effect.gen(function* () {
      const { directory, kept } = yield* acquire
      const own = yield* plant(directory, undefined)
      assert.deepStrictEqual(yield* kept.list, [])
      assert.isFalse(existsSync(own))
    })
  )
})
