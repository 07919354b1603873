import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { WorkspaceSource } from "@cogni/sandbox-core/SpecFields"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const KiB = 1024
const workspaceBytesMax = 256 * KiB
/** Counted for each file besides its blocks. */
const inodeBytes = 512

const acquireWhole = Effect.fnUntraced(function* (source: WorkspaceSource, bytesMax: number) {
  const workspaces = yield* Workspace
  const runId = yield* RunId.generate
  return yield* workspaces.acquire({
    runId,
    source,
    inputs: [],
    planted: [],
    memory: true,
    workspaceBytesMax: bytesMax
  })
}, Effect.provide(HostWorkspace.layer()))

const acquire = (source: WorkspaceSource) =>
  Effect.map(acquireWhole(source, workspaceBytesMax), ({ countedBytes, mounts }) => ({
    countedBytes: Effect.map(countedBytes, ({ bytes }) => bytes),
    path: mounts[0]!.source
  }))

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

/** Makes a file that uses so much of the disk, at once. */
const allocate = (path: string, name: string, bytes: number) =>
  execFileSync("fallocate", ["--length", String(bytes), join(path, name)])

/** Other processes use this disk too, such as builds of images, but change it less than this during a test. */
const bytesMax = 2 * 1024 * 1024 * KiB

/** Path of a name in `directory` that is not valid UTF-8. */
const named = (directory: Buffer | string, ...name: ReadonlyArray<number>) =>
  Buffer.concat([Buffer.from(directory), Buffer.from([0x2f, ...name])])

describe("added bytes", () => {
  it.effect("include files and directories whose names are not valid UTF-8", () =>
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

  it.effect("exclude what existed before the run", () =>
    Effect.gen(function* () {
      const path = yield* directory
      fill(path, "before", 512 * KiB)
      const { countedBytes } = yield* acquire({ type: "directory", path })
      assert.strictEqual(yield* countedBytes, 0)
      fill(path, "added", 64 * KiB)
      assert.strictEqual(yield* countedBytes, 64 * KiB + inodeBytes)
    })
  )

  it.effect("include empty files, and the growth of the directory by their names", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { countedBytes } = yield* acquire({ type: "directory", path })
      assert.strictEqual(yield* countedBytes, 0)
      const names = Array.from({ length: 2000 }, (_, index) => `${"n".repeat(200)}${index}`)
      const before = statSync(path).blocks
      for (const name of names) writeFileSync(join(path, name), "")
      const grown = (statSync(path).blocks - before) * 512
      assert.isAbove(grown, 0)
      assert.strictEqual(yield* countedBytes, grown + names.length * inodeBytes)
    })
  )

  it.effect("include everything if all counts: each run starts with the bytes of earlier runs", () =>
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

  it.effect("start at the limit in a workspace that is over it, and shrink when files are deleted", () =>
    Effect.gen(function* () {
      const path = yield* directory
      fill(path, "one", 512 * KiB)
      fill(path, "other", 128 * KiB)
      const { countedBytes } = yield* acquire({ type: "directory", path, counts: "all" })
      assert.strictEqual(yield* countedBytes, workspaceBytesMax)
      fill(path, "more", 4 * KiB)
      assert.strictEqual(yield* countedBytes, workspaceBytesMax + 4 * KiB + inodeBytes)
      rmSync(join(path, "other"))
      assert.isBelow(yield* countedBytes, workspaceBytesMax)
    })
  )
})

describe("the count", () => {
  it.effect("is certain until the disk usage has grown by as much as the run may still add", () =>
    Effect.gen(function* () {
      const elsewhere = yield* directory
      const path = yield* directory
      const { countedBytes, countedBytesAtRest } = yield* acquireWhole({ type: "directory", path }, bytesMax)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: true })
      allocate(elsewhere, "much", bytesMax + 1024 * KiB)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: false })
      assert.strictEqual(yield* countedBytesAtRest, 0)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: true })
      allocate(path, "half", bytesMax / 2)
      const bytes = statSync(join(path, "half")).blocks * 512 + inodeBytes
      assert.strictEqual(yield* countedBytesAtRest, bytes)
      allocate(elsewhere, "less", (bytesMax / 4) * 3)
      assert.deepStrictEqual(yield* countedBytes, { bytes, isCertain: false })
    })
  )

  it.effect("becomes uncertain earlier in a fuller workspace, if all counts", () =>
    Effect.gen(function* () {
      const path = yield* directory
      allocate(path, "kept", (bytesMax / 4) * 3)
      const { countedBytes } = yield* acquireWhole({ type: "directory", path, counts: "all" }, bytesMax)
      assert.deepInclude(yield* countedBytes, { isCertain: true })
      allocate(yield* directory, "elsewhere", bytesMax / 2)
      assert.deepInclude(yield* countedBytes, { isCertain: false })
    })
  )
})

describe("a directory without access for the agent", () => {
  it.effect("is refused with a chown command, except directly below the root", () =>
    Effect.gen(function* () {
      const path = yield* directory
      chmodSync(path, 0o500)
      const told = yield* Effect.forEach([path, "/mnt"], (path) =>
        Effect.flip(acquire({ type: "directory", path }))
      )
      assert.include(told[0]?.message, `chown -R`)
      assert.include(told[1]?.message, "Use a project directory in it")
      assert.notInclude(told[1]?.message, "chown")
    })
  )

  it.effect("is quoted in that command for the shell", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "root's dir $x")
      mkdirSync(path)
      chmodSync(path, 0o500)
      const { message } = yield* Effect.flip(acquire({ type: "directory", path }))
      const command = message.slice(message.indexOf("chown -R")).replace("chown -R 1000:1000", "ls -d").trim()
      assert.strictEqual(execFileSync("sh", ["-c", command], { encoding: "utf8" }).trim(), path)
    })
  )
})
