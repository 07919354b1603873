import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { WorkspaceSource } from "@cogni/sandbox-core/SandboxSpec"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const KiB = 1024
const workspaceBytesMax = 256 * KiB
/** Charged for each file besides its blocks. */
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
      assert.strictEqual(yield* countedBytes, 64 * KiB + inodeBytes)
    })
  )

  it.effect("counts empty files, and the directory that their names fill", () =>
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
      assert.strictEqual(yield* countedBytes, workspaceBytesMax + 4 * KiB + inodeBytes)
      rmSync(join(path, "other"))
      assert.isBelow(yield* countedBytes, workspaceBytesMax)
    })
  )
})

describe("how certain that is", () => {
  it.effect("is very, until the disk has grown by what may still be added, whoever did it", () =>
    Effect.gen(function* () {
      const elsewhere = yield* directory
      const allocate = (name: string, bytes: number) =>
        execFileSync("fallocate", ["--length", String(bytes), join(elsewhere, name)])
      const path = yield* directory
      // Others use this disk too, but not as fast as that.
      const bytesMax = 64 * 1024 * KiB
      const { countedBytes, countedBytesAtRest } = yield* acquireWhole({ type: "directory", path }, bytesMax)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: true })
      allocate("much", bytesMax + 1024 * KiB)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: false })
      assert.strictEqual(yield* countedBytesAtRest, 0)
      assert.deepStrictEqual(yield* countedBytes, { bytes: 0, isCertain: true })
      fill(path, "half", bytesMax / 2)
      assert.strictEqual(yield* countedBytesAtRest, bytesMax / 2 + inodeBytes)
      allocate("less", (bytesMax / 4) * 3)
      assert.deepStrictEqual(yield* countedBytes, { bytes: bytesMax / 2 + inodeBytes, isCertain: false })
    })
  )

  it.effect("is less in a workspace that is full already, where all counts", () =>
    Effect.gen(function* () {
      const bytesMax = 64 * 1024 * KiB
      const path = yield* directory
      fill(path, "kept", (bytesMax / 4) * 3)
      const { countedBytes } = yield* acquireWhole({ type: "directory", path, counts: "all" }, bytesMax)
      assert.deepInclude(yield* countedBytes, { isCertain: true })
      execFileSync("fallocate", ["--length", String(bytesMax / 2), join(yield* directory, "elsewhere")])
      assert.deepInclude(yield* countedBytes, { isCertain: false })
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

  it.effect("is named so that a shell takes the command as it stands", () =>
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
