import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import type { PoolReport } from "@cogni/sandbox-core/PoolReport"
import { Effect, Exit, Scope } from "effect"
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import * as HostOwner from "../src/HostOwner.ts"
import * as HostMemory from "../src/internal/host/HostMemory.ts"
import * as PoolReports from "../src/internal/host/PoolReports.ts"

const report: PoolReport = {
  waiting: [],
  shapes: [
    { image: "memory/agent", waiting: 0, wanted: 2, memoryBytes: 700 * 2 ** 20, limitedBy: "memoryBytesMax" },
    { image: "memory/other", waiting: 0, wanted: 1, memoryBytes: 2 ** 24 }
  ],
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
        detail:
          "3 of 9 runs got a waiting sandbox; 0 wait now: " +
          "memory/agent 0 of 2 wanted (700 MiB each, limited by PoolLimits.memoryBytesMax), " +
          "memory/other 0 of 1 wanted (16 MiB each); " +
          "2 started cold: its workspace is a directory, which this host cannot bind into a waiting sandbox"
      })
      assert.strictEqual(bad?.status, "fail")
      assert.match(
        bad?.detail ?? "",
        /^none of 22 runs found a waiting sandbox\. Raise PoolLimits\.memoryBytesMax\. 0 wait now: memory\/agent/u
      )
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(readdirSync(pools), [])
    })
  )

  it.effect("leaves out what ended processes reported, and removes that when the next pool reports", () =>
    Effect.gen(function* () {
      const pools = yield* directory
      const reported = (name: string, owner: string, isOld: boolean) => {
        const path = join(pools, name)
        writeFileSync(path, JSON.stringify({ version: 1, owner, hits: 1, runs: 1, waiting: 1 }))
        if (isOld) utimesSync(path, 0, 0)
      }
      const self = HostOwner.self()
      const elsewhere = formatOwner({ ...self, bootId: "other-boot-1" })
      reported("dead.json", formatOwner({ ...self, processId: 2 ** 22 + 1 }), false)
      reported("old-boot.json", elsewhere, true)
      reported("other-namespace.json", elsewhere, false)
      reported("living.json", formatOwner(self), true)
      writeFileSync(join(pools, "unreadable.json"), "{")
      utimesSync(join(pools, "unreadable.json"), 0, 0)
      const before = readdirSync(pools)
      assert.strictEqual((yield* PoolReports.findings(pools)).length, 2)
      assert.deepStrictEqual(readdirSync(pools), before, "a reader changes nothing")
      yield* Effect.scoped(PoolReports.written(pools, Effect.succeed(report)))
      assert.deepStrictEqual(readdirSync(pools).toSorted(), ["living.json", "other-namespace.json"])
    })
  )
})
