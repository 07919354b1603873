/** The example that needs Docker runs as it is printed. Those that do not are run in `test/architecture`. */
import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import * as Images from "../harness/Images.ts"

describe("examples", () => {
  it("sealed-run-on-docker seals a command", async () => {
    const home = await mkdtemp(join(tmpdir(), "cogni-example-"))
    try {
      const { stdout } = await promisify(execFile)(
        process.execPath,
        ["examples/run.ts", "sealed-run-on-docker"],
        {
          timeout: 30_000,
          env: { COGNI_RUNTIME_IMAGE: Images.runtime, TMPDIR: home }
        }
      )
      assert.include(stdout, "uid=1000")
      assert.include(stdout, "cannot touch '/etc/x': Read-only file system")
      assert.include(stdout, "held as seen by sandbox, engine, host")
    } finally {
      await rm(home, { recursive: true, force: true })
    }
  })
})
