import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { Effect } from "effect"
import { mkdirSync, writeFileSync } from "node:fs"

const acquire = Effect.gen(function* () {
  const workspaces = yield* Workspace
  const runId = yield* RunId.generate
  const { addedBytes, mounts } = yield* workspaces.acquire({
    runId,
    source: { type: "temporary" },
    inputs: [],
    planted: [],
    memory: true
  })
  return { addedBytes, path: mounts[0]!.source }
}).pipe(Effect.provide(HostWorkspace.layer()))

/** In `directory`, one of so many bytes that no text is. */
const named = (directory: Buffer | string, ...name: ReadonlyArray<number>) =>
  Buffer.concat([Buffer.from(directory), Buffer.from([0x2f, ...name])])

describe("what a run has added", () => {
  it.effect("counts files and directories whose names are no text", () =>
    Effect.gen(function* () {
      const { addedBytes, path } = yield* acquire
      const directory = named(path, 0x64, 0xff)
      mkdirSync(directory)
      writeFileSync(named(directory, 0xc3), Buffer.alloc(65_536, 1))
      writeFileSync(named(directory, 0xc3, 0xa9), Buffer.alloc(65_536, 1))
      writeFileSync(named(path, 0xfe), Buffer.alloc(65_536, 1))
      assert.isAtLeast(yield* addedBytes, 3 * 65_536)
    })
  )
})
