import { assert, describe, it } from "@effect/vitest"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Deferred, Effect, Fiber } from "effect"
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
  outcome: RunRecord["outcome"] = { status: "running" },
  more: Partial<SandboxSpec.SandboxSpecInput> = {}
) {
  const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"], ...more })
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

/** Makes the owner of every unsettled run a dead process. */
const orphan = (path: string) => {
  for (const entry of readdirSync(join(path, "unsettled"), { withFileTypes: true })) {
    const file = join(path, "unsettled", entry.name)
    if (entry.isFile()) writeFileSync(file, readFileSync(file, "utf8").replace(/^.*$/mu, dead))
  }
}

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
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"] })
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
        const { reap, store } = FileRunStore.make({
          directory: yield* directory,
          trafficOf: "unknown"
        })
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
      const { reap, store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
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

  it.effect("deletes all ended runs, also more than a list shows, and no running one", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { ended, forget, running, store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"] })
      yield* store.open(runId, spec)
      const count = 501
      for (let number = 0; number < count; number++) {
        const id = RunId.make(`run-ended-${String(number).padStart(6, "0")}`)
        const own = join(path, "runs", id)
        mkdirSync(own)
        const record = JSON.parse(readFileSync(join(path, "runs", runId, "record.json"), "utf8"))
        writeFileSync(
          join(own, "record.json"),
          JSON.stringify({ ...record, runId: id, outcome: { status: "interrupted" } })
        )
      }
      assert.strictEqual((yield* ended).length, count)
      assert.deepStrictEqual(
        (yield* running).map((record) => record.runId),
        [runId]
      )
      assert.strictEqual((yield* forget).length, count)
      assert.deepStrictEqual(readdirSync(join(path, "runs")), [runId])
    })
  )

  it.effect("names orphaned runs without touching them", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { orphans, store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const own = yield* abandon(store, runId, (inside) => mkdirSync(join(inside, "workspace")))
      assert.deepStrictEqual(yield* orphans, [runId])
      assert.isTrue(existsSync(join(own, "workspace")))
    })
  )

  it.effect("records a run as interrupted if it is interrupted right after opening", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"] })
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
      const { reap, store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const open = yield* store.open(runId, yield* SpecDecoder.decode({ image: "i", argv: ["a"] }))
      mkdirSync(join(open.directory!, "workspace"))
      assert.deepStrictEqual(yield* reap, [])
      assert.isTrue(existsSync(join(open.directory!, "workspace")))
    })
  )

  const llm = { model: "m", identity: { billingAccountId: "acct", attempt: 0, graphId: "sandbox:agent" } }
  const traffic = {
    proxy: "gateway",
    upstream: "x",
    calls: [],
    callsTotal: 0,
    unreadableRows: 0,
    injectedHeaders: []
  }
  const token = "00000000-0000-4000-8000-000000000001"
  const observed = { token, virtualKeyId: "vk", grantId: "g", requestId: "r", ingressRequestId: "i" }

  it.effect(
    "adds what its audit says to the record of an abandoned run, when it is read and when it is reaped",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        const { reap, store } = FileRunStore.make({
          directory: path,
          trafficOf: () => Effect.succeed(traffic)
        })
        const inside = yield* abandon(store, runId, (made) => mkdirSync(join(made, "inputs")), undefined, {
          llm
        })
        assert.deepStrictEqual((yield* store.get(runId))?.llm, traffic)
        assert.deepStrictEqual((yield* store.describe(runId))?.llm, traffic)
        assert.notInclude(readFileSync(join(inside, "record.json"), "utf8"), "callsTotal")
        assert.deepStrictEqual(yield* reap, [runId])
        assert.include(readFileSync(join(inside, "record.json"), "utf8"), "callsTotal")
      })
  )

  it.effect("returns the record of an abandoned run whose audit cannot be read", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({
        directory: path,
        trafficOf: () => Effect.fail({ message: "the disk is broken" })
      })
      yield* abandon(store, runId, () => undefined, undefined, { llm })
      const record = yield* store.get(runId)
      assert.strictEqual(record?.outcome.status, "abandoned")
      assert.notProperty(record, "llm")
    })
  )

  it.effect("keeps a run unsettled whose audit cannot be read: its usage is not taken for none", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const failing = FileRunStore.make({
        directory: path,
        trafficOf: () => Effect.fail({ message: "the disk is broken" })
      }).store
      yield* abandon(failing, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      orphan(path)
      const told: Array<RunRecord> = []
      const recover = (store: typeof failing) =>
        store.recover((record) => Effect.sync(() => void told.push(record)))
      assert.deepStrictEqual(yield* recover(failing), [])
      assert.deepStrictEqual(told, [])
      const { store } = FileRunStore.make({ directory: path, trafficOf: () => Effect.succeed(traffic) })
      assert.deepStrictEqual(yield* recover(store), [runId])
      assert.deepStrictEqual(told[0]?.llm, traffic)
      assert.deepStrictEqual(yield* recover(store), [])
      assert.strictEqual(told.length, 1)
    })
  )

  it.effect("keeps a run unsettled whose record was lost, and settles one that had not begun", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: () => Effect.succeed(traffic) })
      const second = { ...observed, token: "00000000-0000-4000-8000-000000000002" }
      const lost = yield* abandon(store, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      mkdirSync(join(lost, "audit"))
      writeFileSync(join(lost, "audit", "audit.jsonl"), "")
      const unbegun = yield* abandon(store, other, () => undefined, undefined, {
        llm: { ...llm, observed: second }
      })
      for (const inside of [lost, unbegun]) rmSync(join(inside, "record.json"))
      orphan(path)
      assert.deepStrictEqual(yield* store.recover(() => Effect.die("nothing to tell")), [other])
      assert.strictEqual(
        readdirSync(join(path, "unsettled")).filter((name) => name.startsWith(runId)).length,
        1
      )
    })
  )

  it.effect("starts no run whose usage is billed without its first record", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"], llm: { ...llm, observed } })
      const unwritable = { ...spec, llm: { ...spec.llm!, model: 7 as unknown as string } }
      const error = yield* Effect.flip(store.open(runId, unwritable))
      assert.strictEqual(error._tag, "HostFailed")
    })
  )

  it.effect("does not recover the run of a living owner, nor one that is settled", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      yield* abandon(store, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      let told = 0
      const recover = store.recover(() => Effect.sync(() => void (told += 1)))
      assert.deepStrictEqual(yield* recover, [])
      orphan(path)
      yield* store.settle(runId, token)
      assert.deepStrictEqual(yield* recover, [])
      assert.strictEqual(told, 0)
    })
  )

  it.effect("tells no run that another recovery tells, or told after this one had found it", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      const second = { ...observed, token: "00000000-0000-4000-8000-000000000002" }
      yield* abandon(store, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      yield* abandon(store, other, () => undefined, undefined, { llm: { ...llm, observed: second } })
      orphan(path)
      const told: Array<RunId> = []
      const begun = yield* Deferred.make<void>()
      const proceed = yield* Deferred.make<void>()
      const slow = yield* Effect.forkChild(
        store.recover((record) =>
          Effect.gen(function* () {
            told.push(record.runId)
            yield* Deferred.succeed(begun, undefined)
            yield* Deferred.await(proceed)
          })
        )
      )
      yield* Deferred.await(begun)
      // The slow recovery has found both runs, and tells one of them. This one settles the other.
      const settled = yield* store.recover((record) => Effect.sync(() => void told.push(record.runId)))
      assert.sameMembers([...told.slice(0, 1), ...settled], [runId, other])
      yield* Deferred.succeed(proceed, undefined)
      assert.deepStrictEqual(yield* Fiber.join(slow), told.slice(0, 1))
      assert.strictEqual(told.length, 2)
      assert.deepStrictEqual(readdirSync(join(path, "unsettled", "claims")), [])
    })
  )

  it.effect("settles no run with the token of another start", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
      yield* abandon(store, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      yield* store.settle(runId, "00000000-0000-4000-8000-000000000002")
      orphan(path)
      assert.deepStrictEqual(yield* store.recover(() => Effect.void), [runId])
    })
  )

  it.effect("gives a run to one of many concurrent recoveries", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const stores = Array.from(
        { length: 8 },
        () => FileRunStore.make({ directory: path, trafficOf: "unknown" }).store
      )
      yield* abandon(stores[0]!, runId, () => undefined, undefined, { llm: { ...llm, observed } })
      orphan(path)
      let told = 0
      const settled = yield* Effect.all(
        stores.map((store) =>
          store.recover(() =>
            Effect.sync(() => {
              told += 1
            })
          )
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(told, 1)
      assert.deepStrictEqual(settled.flat(), [runId])
      assert.deepStrictEqual(readdirSync(join(path, "unsettled", "claims")), [])
    })
  )
})
