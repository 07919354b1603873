/** A run that is interrupted or fails waits for its file operations, so that nothing is made or removed after its end. */
import * as RunId from "@cogni/sandbox-core/RunId"
import type { Input } from "@cogni/sandbox-core/SpecFields"
import type { PreparedDirectories } from "@cogni/sandbox-core/WaitingSandbox"
import { Workspace, type WorkspaceRequest } from "@cogni/sandbox-core/Workspace"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { vi } from "vitest"
import * as HeldCalls from "../../../test/harness/HeldCalls.ts"

vi.mock("node:fs/promises", async (original) =>
  (await import("../../../test/harness/HeldCalls.ts")).interposed(original)
)

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-interruption-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** A host's workspaces, with directories of their own for claims and for sandboxes that wait. */
const host = Effect.map(directory, (root) => ({
  root,
  layer: HostWorkspace.layer({ claims: join(root, "claims"), waiting: join(root, "waiting") })
}))

const acquire = Effect.fnUntraced(function* (
  asked: Pick<WorkspaceRequest, "source" | "memory" | "prepared">,
  names: ReadonlyArray<string> = ["first", "second"]
) {
  const workspaces = yield* Workspace
  const inputs: ReadonlyArray<Input> = names.map((name) => ({ name, content: name }))
  const runId = yield* RunId.generate
  return yield* workspaces.acquire({ runId, inputs, planted: [], workspaceBytesMax: 1024 ** 2, ...asked })
})

const prepare = Effect.flatMap(Workspace, (workspaces) => workspaces.prepare!({ memory: true }))

/** Gives a sandbox that waited to a run with these inputs. */
const claim = (names?: ReadonlyArray<string>) => (prepared: PreparedDirectories) =>
  acquire({ source: { type: "temporary" }, memory: true, prepared }, names)

describe("a run that is interrupted", () => {
  it.effect("waits for the inputs of a run that gets a sandbox which waited", () =>
    Effect.gen(function* () {
      const { layer, root } = yield* host
      const run = Effect.provide(Effect.scoped(Effect.flatMap(prepare, claim())), layer)
      yield* HeldCalls.interruptedDuring("open", "/inputs/second", run)
      assert.deepStrictEqual(readdirSync(join(root, "waiting")), [])
    })
  )

  it.effect("waits for the directory in a workspace, which it holds open", () =>
    Effect.gen(function* () {
      const { layer, root } = yield* host
      const path = join(root, "project")
      mkdirSync(path)
      chmodSync(path, 0o777)
      const run = Effect.scoped(acquire({ source: { type: "directory", path }, memory: false }))
      yield* HeldCalls.interruptedDuring("mkdir", "/.cogni", Effect.provide(run, layer))
      assert.isTrue(existsSync(join(path, ".cogni")))
    })
  )

  it.effect("waits for the removal of the mark of a run whose usage was accepted", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const token = crypto.randomUUID()
      const runId = yield* RunId.generate
      const { store } = FileRunStore.make({ directory: root, trafficOf: "unknown" })
      const mark = join(root, "unsettled", `${runId}.${token}`)
      mkdirSync(dirname(mark))
      writeFileSync(mark, "")
      yield* HeldCalls.interruptedDuring("rm", token, store.settle(runId, token))
      assert.isFalse(existsSync(mark))
    })
  )
})

describe("a run that fails", () => {
  it.effect("waits for the other inputs if one of them cannot be written", () =>
    Effect.gen(function* () {
      const { layer } = yield* host
      yield* Effect.gen(function* () {
        const claiming = claim(["missing/first", "second"])(yield* prepare)
        const { fiber, release } = yield* HeldCalls.begin("open", "/inputs/second", claiming)
        const isEarly = yield* HeldCalls.endsEarly(fiber)
        yield* release
        const { message } = yield* Effect.flip(Fiber.join(fiber))
        assert.include(message, "ENOENT")
        assert.isFalse(isEarly, "it failed before the other input was written")
      }).pipe(Effect.provide(layer))
    })
  )
})
