/** `Workspace` in host directories meets the same contract as the one in memory. */
import { WorkspaceContract } from "@cogni/sandbox-core/testing"
import { Effect } from "effect"
import { existsSync, readFileSync, statSync } from "node:fs"
import { chmod, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as RunHarness from "../harness/RunHarness.ts"

WorkspaceContract.suite("host", RunHarness.layer(), {
  directory: Effect.acquireRelease(
    Effect.promise(async () => {
      const path = await mkdtemp(join(tmpdir(), "cogni-project-"))
      await chmod(path, 0o777)
      return path
    }),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  ),
  missingDirectory: join(tmpdir(), "cogni-project-missing"),
  exists: (source) => Effect.sync(() => existsSync(source)),
  read: (path) => Effect.sync(() => readFileSync(path, "utf8")),
  mode: (path) => Effect.sync(() => statSync(path).mode)
})
