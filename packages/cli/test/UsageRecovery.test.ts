/** A host process that is killed with SIGKILL, at every step of a run and of a recovery: no usage is lost or doubled. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as UsageFact from "../../graph-provider/src/events/UsageFact.ts"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as UsageRecovery from "@cogni/sandbox-graph-provider/UsageRecovery"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { ChildProcess } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Records from "../src/Records.ts"
import * as BillingProcess from "./BillingProcess.ts"

const runId = RunId.make("run-billing00001")

/** Steps after which reported usage is not settled yet: the only ones after which it is reported again. */
const toldUnsettled = new Set(["observer:after", "settle:before"])

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-billing-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** An upstream that counts its calls. `onCall` is called before it answers. */
const upstream = (onCall: (number: number) => void = () => undefined) =>
  ScriptedModelApi.acquire({
    script: ({ number }) => {
      onCall(number)
      return { say: "hello", usage: BillingProcess.figures }
    }
  })

/** Call IDs of the requests that the upstream received. */
const callIds = (received: ReadonlyArray<ScriptedModelApi.Received>) =>
  received.flatMap(({ headers }) =>
    headers.flatMap(([name, value]) => (name.toLowerCase() === "x-litellm-call-id" ? [value] : []))
  )

const storeOf = (path: string) =>
  FileRunStore.make({ directory: path, trafficOf: AuditTraffic.reader() }).store

/** Recovers in this process, with a store of its own. */
const recover = (
  path: string,
  observe: Parameters<typeof GraphObserver.layer>[0] = BillingProcess.account(path)
) =>
  UsageRecovery.recover.pipe(
    Effect.provide(
      Layer.merge(
        GraphObserver.layer(observe),
        Layer.sync(RunStore, () => storeOf(path))
      )
    )
  )

/** Marks of unsettled runs, and claims of recoveries. */
const left = (path: string) =>
  ["unsettled", "unsettled/claims"].flatMap((name) =>
    existsSync(join(path, name))
      ? readdirSync(join(path, name), { withFileTypes: true })
          .filter((entry) => entry.isFile())
          .map((entry) => entry.name)
      : []
  )

/** Checks a ledger after the last recovery: each call once, or twice if its process died in between. */
const addsUp = (path: string, received: ReadonlyArray<string>, twice: boolean) => {
  const facts = BillingProcess.ledger(path)
  const byKey = Map.groupBy(facts, UsageFact.key)
  for (const [key, [first, ...again]] of byKey) {
    assert.isAtMost(again.length, twice ? 1 : 0, `${key} was told too often`)
    for (const fact of again) assert.deepStrictEqual(fact, first)
  }
  const units = new Set(facts.map(({ usageUnitId }) => usageUnitId))
  for (const callId of received) assert.isTrue(units.has(callId), `${callId} was never told`)
  for (const [fact] of byKey.values()) {
    assert.deepInclude(fact, { runId, attempt: 0, billingAccountId: "acct", virtualKeyId: "vk" })
    if (fact?.usageRaw?.["outcome"] === "completed") assert.deepInclude(fact, BillingProcess.figures)
  }
  assert.deepStrictEqual(left(path), [], "marks or claims are left")
}

/** Every step of a run. A kill at the last two comes too late to lose anything. */
const steps = [
  "begin",
  "open:before",
  "started",
  "open:after",
  "acquire:before",
  "acquire:after",
  "ready:before",
  "ready:after",
  "call-1:before",
  "call-1:after",
  "call-2:before",
  "call-2:after",
  "call-3:before",
  "call-3:after",
  "finish:before",
  "finish:after",
  "save:before",
  "save:after",
  "annotate:before",
  "annotate:after",
  "observer:before",
  "observer:after",
  "settle:before",
  "settle:after",
  "final"
]

/** Every step of a recovery. */
const recoverySteps = [
  "begin",
  "recovery:before",
  "audit:before",
  "audit:after",
  "observer:before",
  "observer:after",
  "recovery:after"
]

/** A state directory whose process was killed at this step, and the calls that it made. */
const killedAt = Effect.fnUntraced(function* (killAt: string | undefined) {
  const path = yield* directory
  const { received, url } = yield* upstream()
  const ended = yield* BillingProcess.run({ mode: "run", directory: path, runId, url, killAt })
  return { ...ended, path, url, calls: callIds(yield* received) }
})

describe("a host process that is killed", () => {
  it.live("has the steps at which the tests below kill it", () =>
    Effect.gen(function* () {
      const run = yield* killedAt(undefined)
      assert.isFalse(run.isKilled)
      assert.sameMembers([...run.steps], steps)
      assert.strictEqual(run.calls.length, BillingProcess.callsMax)
      addsUp(run.path, run.calls, false)
      assert.strictEqual(BillingProcess.ledger(run.path).length, BillingProcess.callsMax)
      const { path, url } = yield* killedAt("call-2:after")
      const recovery = yield* BillingProcess.run({ mode: "recover", directory: path, runId, url })
      assert.deepStrictEqual(recovery.steps, recoverySteps)
    }).pipe(Effect.scoped)
  )

  it.live.each(steps)("at %s loses no usage, and reports settled usage once", (step) =>
    Effect.gen(function* () {
      const { calls, isKilled, path } = yield* killedAt(step)
      assert.isTrue(isKilled)
      // Two starts recover at the same time.
      yield* Effect.all([recover(path), recover(path)], { concurrency: 2 })
      addsUp(path, calls, toldUnsettled.has(step))
      const before = BillingProcess.ledger(path)
      assert.deepStrictEqual(yield* recover(path), [], "a later start tells nothing")
      assert.deepStrictEqual(BillingProcess.ledger(path), before)
      const record = yield* storeOf(path).get(runId)
      assert.notStrictEqual(record?.outcome.status, "running")
      assert.isAtLeast(record?.llm?.calls.length ?? 0, calls.length)
      assert.isAtLeast(calls.length, Number(/^call-(\d):after$/u.exec(step)?.[1] ?? 0))
    }).pipe(Effect.scoped)
  )

  for (const number of [0, 1, 2])
    it.live(`while call ${number + 1} is open at the upstream is charged what was reserved for it`, () =>
      Effect.gen(function* () {
        const path = yield* directory
        let child: ChildProcess | undefined
        const { received, url } = yield* upstream((call) => {
          if (call === number) child?.kill("SIGKILL")
        })
        const { isKilled } = yield* BillingProcess.run(
          { mode: "run", directory: path, runId, url },
          (made) => {
            child = made
          }
        )
        assert.isTrue(isKilled)
        yield* recover(path)
        const calls = callIds(yield* received)
        assert.strictEqual(calls.length, number + 1)
        addsUp(path, calls, false)
        const open = BillingProcess.ledger(path).find(({ usageUnitId }) => usageUnitId === calls.at(-1))
        assert.deepInclude(open, { estimated: true })
        assert.isAbove(open?.inputTokens ?? 0, 0)
        assert.strictEqual(open?.usageRaw?.["outcome"], "run_ended")
      }).pipe(Effect.scoped)
    )

  it.live.each(recoverySteps)("at %s of a recovery leaves the run to the next one, of two at once", (step) =>
    Effect.gen(function* () {
      const { calls, path, url } = yield* killedAt("call-2:after")
      const { isKilled } = yield* BillingProcess.run({
        mode: "recover",
        directory: path,
        runId,
        url,
        killAt: step
      })
      assert.isTrue(isKilled)
      yield* Effect.all([recover(path), recover(path)], { concurrency: 2 })
      addsUp(path, calls, step === "observer:after")
      assert.strictEqual(new Set(BillingProcess.ledger(path).map(UsageFact.key)).size, 2)
    }).pipe(Effect.scoped)
  )

  it.live("is recovered once by three processes that start at the same time", () =>
    Effect.gen(function* () {
      const { calls, path, url } = yield* killedAt("call-3:before")
      yield* Effect.all(
        Array.from({ length: 3 }, () => BillingProcess.run({ mode: "recover", directory: path, runId, url })),
        { concurrency: "unbounded" }
      )
      addsUp(path, calls, false)
      assert.strictEqual(BillingProcess.ledger(path).length, 2)
    }).pipe(Effect.scoped)
  )
})

describe("the recovery of usage", () => {
  const abandoned = Effect.gen(function* () {
    const path = yield* directory
    let child: ChildProcess | undefined
    const { url } = yield* upstream((call) => {
      if (call === 1) child?.kill("SIGKILL")
    })
    yield* BillingProcess.run({ mode: "run", directory: path, runId, url }, (made) => {
      child = made
    })
    return path
  })

  it.live("leaves a run whose observer fails to the next recovery", () =>
    Effect.gen(function* () {
      const path = yield* abandoned
      for (const answer of [Effect.fail("the ledger is down"), Effect.die(new Error("broken"))])
        assert.deepStrictEqual(yield* recover(path, () => answer), [])
      assert.deepStrictEqual(yield* recover(path), [runId])
      assert.deepStrictEqual(left(path), [])
    }).pipe(Effect.scoped)
  )

  it.live("tells the run as one that failed because its host died", () =>
    Effect.gen(function* () {
      const path = yield* abandoned
      const ends: Array<GraphObserver.ObservedEnd> = []
      yield* recover(path, (end) => Effect.sync(() => void ends.push(end)))
      assert.containSubset(ends[0], {
        isRecovered: true,
        request: { graphId: "sandbox:agent", model: "m" },
        context: { runId, attempt: 0, grantId: "grant", ingressRequestId: "in" },
        final: { ok: false, error: "internal", reason: "HostDied", requestId: "req" }
      })
    }).pipe(Effect.scoped)
  )

  it.live("does nothing without an observer, so that another program can bill", () =>
    Effect.gen(function* () {
      const path = yield* abandoned
      const none = UsageRecovery.recover.pipe(
        Effect.provide(
          Layer.merge(
            GraphObserver.layerNone,
            Layer.sync(RunStore, () => storeOf(path))
          )
        )
      )
      assert.deepStrictEqual(yield* none, [])
      assert.deepStrictEqual(yield* recover(path), [runId])
    }).pipe(Effect.scoped)
  )

  it.live("is added to the record by the command, which leaves the run to its observer", () =>
    Effect.gen(function* () {
      const path = yield* abandoned
      const { reap, store } = Records.files({ stateDirectory: path, prices: undefined })
      assert.deepStrictEqual(yield* reap, [runId])
      const record = yield* store.get(runId)
      assert.strictEqual(record?.outcome.status, "abandoned")
      assert.strictEqual(record?.llm?.usage?.calls, 2)
      assert.isDefined(record?.llm?.auditHead)
      assert.deepStrictEqual(yield* recover(path), [runId])
    }).pipe(Effect.scoped)
  )

  it.live("keeps the records of unsettled runs, which it needs", () =>
    Effect.gen(function* () {
      const path = yield* abandoned
      const { forget } = FileRunStore.make({ directory: path, trafficOf: AuditTraffic.reader() })
      assert.deepStrictEqual(yield* forget, [])
      yield* recover(path)
      assert.deepStrictEqual(yield* forget, [runId])
    }).pipe(Effect.scoped)
  )
})
