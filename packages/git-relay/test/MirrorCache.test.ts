/** Removal of the cache of fetched objects. */
import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as RelayUpkeep from "@cogni/sandbox-git-relay/RelayUpkeep"
import { Effect } from "effect"
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const living = { bootId: "boot", processId: 1, startTicks: 1 }
const dead = { ...living, processId: 2 }
const owners = {
  self: () => living,
  liveness: ({ processId }: typeof living) => (processId === 1 ? ("alive" as const) : ("dead" as const))
}

describe("RelayUpkeep.emptyCache", () => {
  it.effect("removes mirrors that no living process has locked, and nothing with dryRun", () =>
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-mirrors-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const plant = (name: string, lock?: string) => {
        mkdirSync(join(directory, name, "mirror.git"), { recursive: true })
        writeFileSync(join(directory, name, "mirror.git", "HEAD"), "ref: refs/heads/main\n")
        if (lock !== undefined) writeFileSync(join(directory, name, "lock"), lock)
      }
      plant("free")
      plant("left", formatOwner(dead))
      plant("locked", formatOwner(living))
      const expected = ["free", "left"].map((name) => join(directory, name))
      const preview = yield* RelayUpkeep.emptyCache({ directory, owners, dryRun: true })
      assert.sameMembers([...preview], expected)
      assert.lengthOf(readdirSync(directory), 3)
      assert.sameMembers([...(yield* RelayUpkeep.emptyCache({ directory, owners }))], expected)
      assert.deepStrictEqual(readdirSync(directory), ["locked"])
      const none = join(directory, "none")
      assert.deepStrictEqual(yield* RelayUpkeep.emptyCache({ directory: none, owners }), [])
    })
  )
})
