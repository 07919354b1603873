/** Files of the relay: an interruption waits for them, so that nothing appears after their removal. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { vi } from "vitest"
import * as HeldCalls from "../../../test/harness/HeldCalls.ts"
import { BranchName } from "../src/Refs.ts"
import * as HostRepository from "../src/internal/git/HostRepository.ts"
import * as RelayFiles from "../src/internal/git/RelayFiles.ts"
import * as KeptRuns from "../src/internal/steps/KeptRuns.ts"

vi.mock("node:fs/promises", async (original) =>
  (await import("../../../test/harness/HeldCalls.ts")).interposed(original)
)

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-relay-files-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

describe("an interruption of the relay", () => {
  it.effect("waits for a directory that is being made", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "open")
      yield* HeldCalls.interruptedDuring("mkdir", "/open", RelayFiles.makeOpen(path))
      assert.isTrue(existsSync(path))
    })
  )

  it.effect("waits for a removal, which could otherwise remove what comes after it", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "own")
      mkdirSync(join(path, "inner"), { recursive: true })
      yield* HeldCalls.interruptedDuring("rm", "/own", RelayFiles.removeOwn(path))
      assert.isFalse(existsSync(path))
    })
  )

  it.effect("leaves nothing of a run whose directory was being made", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const owner = { bootId: "boot", processId: 1, startTicks: 1 }
      const kept = KeptRuns.make({
        directory: root,
        owners: { self: () => owner, liveness: () => "alive" }
      })
      const runId = RunId.make("run-interrupted0001")
      const branch = BranchName.make("sandbox/interrupted")
      const claiming = Effect.andThen(
        kept.occupy(runId),
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
      yield* HeldCalls.interruptedDuring("mkdir", `/${runId}`, Effect.scoped(claiming))
      assert.deepStrictEqual(readdirSync(root), [])
    })
  )

  it.effect("waits for the pack that is being copied, and copies no other", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const packs = (name: string) => join(root, name, "objects", "pack")
      mkdirSync(packs("from"), { recursive: true })
      for (const ending of ["pack", "idx"]) writeFileSync(join(packs("from"), `pack-1.${ending}`), "")
      const copying = HostRepository.transplant(join(root, "from"), join(root, "to"), "copy")
      yield* HeldCalls.interruptedDuring("copyFile", "/pack-1.pack", copying)
      assert.deepStrictEqual(readdirSync(packs("to")), ["pack-1.pack"])
      yield* copying
      assert.deepStrictEqual(readdirSync(packs("to")).toSorted(), ["pack-1.idx", "pack-1.pack"])
    })
  )
})
