/** An interruption waits for the file operation that has begun, so that nothing is made or removed after it. */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { chmod } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { vi } from "vitest"
import * as HeldCalls from "../../../test/harness/HeldCalls.ts"

vi.mock("node:fs/promises", async (original) =>
  (await import("../../../test/harness/HeldCalls.ts")).interposed(original)
)

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-interruption-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

describe("an interruption", () => {
  it.effect("waits for the step of a long operation that has begun, and the next does not begin", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const [one, other] = [join(root, "one"), join(root, "other")]
      for (const path of [one, other]) writeFileSync(path, "")
      const steps = Attempt.attemptSteps(
        async (signal) => {
          for (const path of [one, other]) {
            signal.throwIfAborted()
            await chmod(path, 0o400)
            rmSync(path)
          }
        },
        (message) => message
      )
      yield* HeldCalls.interruptedDuring("chmod", "/one", steps)
      assert.deepStrictEqual([existsSync(one), existsSync(other)], [false, true])
      const failure = yield* Effect.flip(steps)
      assert.include(failure, "ENOENT")
    })
  )

  it.effect("waits for the removal of a file of a workspace, whose directory it held open", () =>
    Effect.gen(function* () {
      const workspace = yield* directory
      const path = join(workspace, "file")
      writeFileSync(path, "")
      const { remove } = WorkspaceFiles.make({ workspace, alias: workspace })
      yield* HeldCalls.interruptedDuring("unlink", "/file", remove(path))
      assert.isFalse(existsSync(path))
    })
  )

  it.effect("waits for the removal of an empty directory, and does not go on to that of a file", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "file")
      writeFileSync(path, "")
      yield* HeldCalls.interruptedDuring("rmdir", "/file", HostTree.remove(path))
      assert.isFalse(existsSync(path))
      mkdirSync(path)
      yield* HeldCalls.interruptedDuring("rmdir", "/file", HostTree.remove(path))
      assert.isFalse(existsSync(path))
    })
  )
})
