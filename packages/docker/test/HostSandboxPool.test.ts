import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import type { PoolReport } from "@cogni/sandbox-core/PoolReport"
import { Effect, Exit, Scope } from "effect"
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import * as HostOwner from "../src/HostOwner.ts"
import * as HostMemory from "../src/internal/host/HostMemory.ts"
import * as PoolReports from "../src/internal/host/PoolReports.ts"

const report: PoolReport = {
  waiting: [],
  started: 1,
  hits: 3,
  misses: 4,
  cold: { workspace: 2 },
  discarded: 0,
  removing: 0
}

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

describe("HostSandboxPool", () => {
  it("reads the available memory that the kernel states", () => {
    assert.strictEqual(HostMemory.parse("MemTotal:  100 kB\nMemAvailable:    2048 kB\n"), 2 * 1024 * 1024)
    assert.isUndefined(HostMemory.parse("MemTotal:  100 kB\n"))
    assert.isUndefined(HostMemory.parse(undefined))
  })

  it.effect("reports to the doctor while its process lives, and says what is wrong", () =>
    Effect.gen(function* () {
      const pools = join(yield* directory, "pools")
      assert.deepStrictEqual(yield* PoolReports.findings(pools), [])
      const scope = yield* Scope.make()
      const useless = { ...report, hits: 0, misses: 20 }
      for (const one of [report, useless])
        yield* Scope.provide(PoolReports.written(pools, Effect.succeed(one)), scope)
      const found = Effect.map(PoolReports.findings(pools), (all) =>
        all.toSorted((a, b) => b.status.localeCompare(a.status))
      )
      yield* Await.until(
        "both are written",
        Effect.map(found, ({ length }) => length === 2)
      )
      const [good, bad] = yield* found
      assert.deepInclude(good, {
        check: `pool of process ${process.pid}`,
        status: "ok",
        detail: "3 of 9 runs got a waiting sandbox; 0 wait now"
      })
      assert.strictEqual(bad?.status, "fail")
      assert.include(bad?.detail, "none of 22 runs found a waiting sandbox")
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(readdirSync(pools), [])

      const owner = formatOwner({ ...HostOwner.self(), processId: 2 ** 22 + 1 })
      writeFileSync(
        join(pools, "dead.json"),
        JSON.stringify({ version: 1, owner, hits: 1, runs: 1, waiting: 1 })
      )
      writeFileSync(join(pools, "broken.json"), "{")
      assert.deepStrictEqual(yield* PoolReports.findings(pools), [])
      assert.deepStrictEqual(readdirSync(pools), ["broken.json"])
    })
  )
})
