import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { WorkspaceSource } from "@cogni/sandbox-core/SandboxSpec"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { Effect } from "effect"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const KiB = 1024
const workspaceBytesMax = 256 * KiB

const acquire = Effect.fnUntraced(function* (source: WorkspaceSource) {
  const workspaces = yield* Workspace
  const runId = yield* RunId.generate
  const { countedBytes, mounts } = yield* workspaces.acquire({
    runId,
    source,
    inputs: [],
    planted: [],
    memory: true,
    workspaceBytesMax
  })
  return { countedBytes, path: mounts[0]!.source }
}, Effect.provide(HostWorkspace.layer()))

const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const path = mkdtempSync(join(tmpdir(), "cogni-test-"))
    chmodSync(path, 0o777)
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const fill = (path: string, name: string, bytes: number) =>
  writeFileSync(join(path, name), Buffer.alloc(bytes, 1))

/** In `directory`, one of so many bytes that no text is. */
const named = (directory: Buffer | string, ...name: ReadonlyArray<number>) =>
  Buffer.concat([Buffer.from(directory), Buffer.from([0x2f, ...name])])

describe("what a run has added", () => {
  it.effect("counts files and directories whose names are no text", () =>
    Effect.gen(function* () {
      const { countedBytes, path } = yield* acquire({ type: "temporary" })
      const directory = named(path, 0x64, 0xff)
      mkdirSync(directory)
      writeFileSync(named(directory, 0xc3), Buffer.alloc(65_536, 1))
      writeFileSync(named(directory, 0xc3, 0xa9), Buffer.alloc(65_536, 1))
      writeFileSync(named(path, 0xfe), Buffer.alloc(65_536, 1))
      assert.isAtLeast(yield* countedBytes, 3 * 65_536)
    })
  )

  it.effect("counts what is added, whatever was there", () =>
    Effect.gen(function* () {
      const path = yield* directory
      fill(path, "before", 512 * KiB)
      const { countedBytes } = yield* acquire({ type: "directory", path })
      assert.strictEqual(yield* countedBytes, 0)
      fill(path, "added", 64 * KiB)
      assert.strictEqual(yield* countedBytes, 64 * KiB)
    })
  )

  it.effect("counts all that is there, where all counts: each run has what those before it have left", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const run = Effect.scoped(
        Effect.gen(function* () {
          const { countedBytes } = yield* acquire({ type: "directory", path, counts: "all" })
          const before = yield* countedBytes
          fill(path, `${before}`, 128 * KiB)
          return [before, yield* countedBytes].map((bytes) => Math.floor(bytes / (64 * KiB)) * 64)
        })
      )
      assert.deepStrictEqual(yield* run, [0, 128])
      assert.deepStrictEqual(yield* run, [128, 256])
    })
  )

  it.effect("lets nothing more into one that is over the limit already, and files out of it", () =>
    Effect.gen(function* () {
      const path = yield* directory
      fill(path, "one", 512 * KiB)
      fill(path, "other", 128 * KiB)
      const { countedBytes } = yield* acquire({ type: "directory", path, counts: "all" })
      assert.strictEqual(yield* countedBytes, workspaceBytesMax)
      fill(path, "more", 4 * KiB)
      assert.strictEqual(yield* countedBytes, workspaceBytesMax + 4 * KiB)
      rmSync(join(path, "other"))
      assert.isBelow(yield* countedBytes, workspaceBytesMax)
    })
  )
})

describe("a directory that the agent cannot work in", () => {
  it.effect("is to be given to it, unless it is nobody's to give", () =>
    Effect.gen(function* () {
      const path = yield* directory
      chmodSync(path, 0o500)
      const told = yield* Effect.forEach([path, "/mnt"], (path) =>
        Effect.flip(acquire({ type: "directory", path }))
      )
      assert.include(told[0]?.message, `chown -R`)
      assert.include(told[1]?.message, "Name a directory of a project in it")
      assert.notInclude(told[1]?.message, "chown")
    })
  )
})
