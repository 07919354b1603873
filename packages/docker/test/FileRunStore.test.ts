import { assert, describe, it } from "@effect/vitest"
import type { RunRecord } from "@cogni/sandbox-core/RunStore"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Effect, Fiber } from "effect"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const runId = RunId.make("run-000000000001")
const other = RunId.make("run-000000000002")

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-store-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const dead = formatOwner({ ...HostOwner.self(), startTicks: HostOwner.self().startTicks + 1 })

/** Leaves a run as a killed process does. `inside` adds files to its directory. */
const abandon = Effect.fnUntraced(function* (
  store: ReturnType<typeof FileRunStore.make>["store"],
  id: RunId,
  inside: (path: string) => void,
  outcome: RunRecord["outcome"] = { status: "running" }
) {
  const spec = yield* SandboxSpec.decode({ image: "i", argv: ["a"] })
  const open = yield* store.open(id, spec)
  yield* open.save({
    runId: id,
    spec,
    owner: dead,
    startedAt: new Date().toISOString(),
    outcome,
    timings: []
  })
  inside(open.directory!)
  return open.directory!
})

/** Creates directories so deep that their path exceeds the maximum length. */
const deep = (path: string) => {
  const before = process.cwd()
  process.chdir(path)
  try {
    for (let level = 0; level < 40; level++) {
      mkdirSync("d".repeat(200))
      process.chdir("d".repeat(200))
    }
    writeFileSync("bottom", "x")
  } finally {
    process.chdir(before)
  }
}

describe("FileRunStore", () => {
  it.effect("stores the agent's output beside the record, and lists records without it", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path })
      const spec = yield* SandboxSpec.decode({ image: "i", argv: ["a"] })
      const open = yield* store.open(runId, spec)
      const channel = (text: string) => ({ text, bytes: text.length, truncated: false })
      const record: RunRecord = {
        runId,
        spec,
        owner: open.owner,
        startedAt: new Date().toISOString(),
        outcome: {
          status: "failed",
          reason: "TimedOut",
          code: "timeout",
          message: "m",
          output: { stdout: channel("written by the agent"), stderr: channel("\0\0") }
        },
        timings: []
      }
      yield* open.save(record)
      assert.deepStrictEqual(yield* store.get(runId), record)
      const [listed] = yield* store.list
      assert.deepInclude(listed?.outcome, {
        output: {
          stdout: { ...channel("written by the agent"), text: "" },
          stderr: { ...channel("\0\0"), text: "" }
        }
      })
      assert.notInclude(readFileSync(join(open.directory!, "record.json"), "utf8"), "written by the agent")
    })
  )

  it.effect("leaves no draft of a record, whenever the cleanup is interrupted", () =>
    Effect.gen(function* () {
      // Each cleanup gets one turn of the event loop more, until it ends before the interruption.
      for (let turns = 0, complete = 0; complete < 3; turns++) {
        const { reap, store } = FileRunStore.make({ directory: yield* directory })
        const own = yield* abandon(store, runId, (path) => writeFileSync(join(path, "socket"), ""))
        const before = readFileSync(join(own, "record.json"), "utf8")
        const fiber = yield* Effect.forkChild(reap, { startImmediately: true })
        for (let passed = 0; passed < turns; passed++)
          yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(
          readdirSync(own).filter((name) => name.endsWith(".new")),
          [],
          `after ${turns} turns`
        )
        if (readFileSync(join(own, "record.json"), "utf8") !== before) complete += 1
      }
    })
  )

  it.effect("reaps every orphaned run, including trees that resist deletion", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { reap, store } = FileRunStore.make({ directory: path })
      const first = yield* abandon(store, runId, (inside) => {
        mkdirSync(join(inside, "workspace"))
        deep(join(inside, "workspace"))
        mkdirSync(join(inside, "upstream-x1"))
        mkdirSync(join(inside, "audit"))
      })
      const second = yield* abandon(
        store,
        other,
        (inside) => {
          mkdirSync(join(inside, "workspace", "closed"), { recursive: true })
          chmodSync(join(inside, "workspace", "closed"), 0)
        },
        { status: "interrupted" }
      )
      assert.deepStrictEqual([...(yield* reap)].toSorted(), [runId, other])
      assert.deepStrictEqual(readdirSync(first).toSorted(), ["audit", "record.json"])
      assert.deepStrictEqual(readdirSync(second), ["record.json"])
      assert.strictEqual((yield* store.get(runId))?.outcome.status, "abandoned")
      assert.strictEqual((yield* store.get(other))?.outcome.status, "interrupted", "a final outcome is kept")
    })
  )

  it.effect("records a run as interrupted if it is interrupted right after opening", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path })
      const spec = yield* SandboxSpec.decode({ image: "i", argv: ["a"] })
      const fiber = yield* Effect.forkChild(
        Effect.scoped(Effect.andThen(store.open(runId, spec), Effect.never)),
        {
          startImmediately: true
        }
      )
      yield* Fiber.interrupt(fiber)
      assert.strictEqual((yield* store.get(runId))?.outcome.status, "interrupted")
      assert.deepStrictEqual(readdirSync(join(path, "runs", runId)), ["record.json"])
    })
  )

  it.effect("does not touch the run of a living owner", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { reap, store } = FileRunStore.make({ directory: path })
      const open = yield* store.open(runId, yield* SandboxSpec.decode({ image: "i", argv: ["a"] }))
      mkdirSync(join(open.directory!, "workspace"))
      assert.deepStrictEqual(yield* reap, [])
      assert.isTrue(existsSync(join(open.directory!, "workspace")))
    })
  )
})
