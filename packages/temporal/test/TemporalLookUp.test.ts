/** Lookups and cancellations in Temporal, with a client that answers as a test says. */
import { WorkflowNotFoundError } from "@temporalio/client"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as TemporalLookUp from "../src/internal/TemporalLookUp.ts"
import { defaults } from "../src/TemporalServer.ts"

const runId = RunId.make("run-durable-1")

/** A workflow as a client describes it. */
const workflow = (over: {
  readonly type?: string
  readonly owner?: string
  readonly attribute?: string
  readonly status?: string
}) => ({
  workflowId: runId,
  runId: "execution-1",
  type: over.type ?? "sandboxAgentRun",
  status: { name: over.status ?? "RUNNING" },
  memo:
    over.owner === undefined
      ? {}
      : { cogni: { billingAccountId: over.owner, grantId: "g", graphId: "sandbox:agent", model: "gpt" } },
  typedSearchAttributes: {
    get: ({ name }: { readonly name: string }) => (name === "CogniAccount" ? over.attribute : undefined)
  }
})

const world = (found: () => Promise<unknown>, owners: ReadonlyArray<string> = []) => {
  const cancelled: Array<readonly unknown[]> = []
  const deadlines: Array<number> = []
  const client = {
    withDeadline: <A>(deadline: number, task: () => Promise<A>) => {
      deadlines.push(deadline)
      return task()
    },
    list: async function* () {
      yield* owners.map((owner) => ({ ...workflow({ owner }), startTime: new Date(0) }))
      if (owners.length === 0) yield await found()
    },
    getHandle: (...its: readonly unknown[]) => ({
      describe: found,
      cancel: () => Promise.resolve(cancelled.push(its))
    })
  }
  const runs = TemporalLookUp.make(
    client as never,
    { ...defaults, isSearchable: true },
    "sandboxAgentRun",
    () => Effect.never
  )
  return { cancelled, deadlines, runs }
}

describe("a durable run in Temporal", () => {
  it.effect("is listed among the newest 500 of its account, whatever other accounts have", () =>
    Effect.gen(function* () {
      const never = () => Promise.reject(new Error("not asked"))
      const listed = (owners: ReadonlyArray<string>) =>
        Effect.map(world(never, owners).runs.underWay("acme"), ({ length }) => length)
      const others = Array.from({ length: 800 }, () => "other")
      const own = Array.from({ length: 501 }, () => "acme")
      assert.strictEqual(yield* listed([...others, "acme"]), 1)
      assert.strictEqual(yield* listed([...own, ...others]), 500)
      assert.strictEqual(yield* listed([...Array.from({ length: 5000 }, () => "other"), "acme"]), 0)
    })
  )

  it.effect("is cancelled for its account, and the workflow of another account or program is not found", () =>
    Effect.gen(function* () {
      for (const [its, refusal] of [
        [{ owner: "acme" }, ""],
        [{ attribute: "acme" }, ""],
        [{}, "OwnerUnknown"],
        [{ owner: "other" }, "RunNotFound"],
        [{ attribute: "other" }, "RunNotFound"],
        [{ owner: "other", attribute: "acme" }, "RunNotFound"],
        [{ type: "payroll", owner: "acme" }, "RunNotFound"]
      ] as const) {
        const { cancelled, runs } = world(() => Promise.resolve(workflow(its)))
        const result = yield* Effect.result(runs.cancel(runId, "acme"))
        assert.strictEqual(result._tag === "Success" ? "" : result.failure.reason, refusal)
        assert.deepStrictEqual(cancelled, refusal === "" ? [[runId, "execution-1"]] : [])
      }
      const missing = world(() => Promise.reject(new WorkflowNotFoundError("none", runId, undefined)))
      assert.strictEqual((yield* Effect.flip(missing.runs.cancel(runId))).reason, "RunNotFound")
    })
  )

  it.effect("without an account is cancelled by an operator, and for an account it says how", () =>
    Effect.gen(function* () {
      const { cancelled, runs } = world(() => Promise.resolve(workflow({})))
      const { message } = yield* Effect.flip(runs.cancel(runId, "acme"))
      assert.include(message, `temporal workflow cancel --workflow-id ${runId}`)
      assert.isUndefined(yield* runs.find(runId))
      assert.lengthOf(cancelled, 0)
      yield* runs.cancel(runId)
      assert.lengthOf(cancelled, 1)
    })
  )

  it.effect("is found only if its workflow is one of ours", () =>
    Effect.gen(function* () {
      const its = world(() => Promise.resolve(workflow({ owner: "acme" })))
      assert.deepInclude(yield* its.runs.find(runId), { runId, billingAccountId: "acme" })
      const forged = world(() => Promise.resolve(workflow({ owner: "acme", type: "payroll" })))
      assert.isUndefined(yield* forged.runs.find(runId))
    })
  )

  it.effect("is unreachable after 5 seconds without an answer, and the call ends then", () =>
    Effect.gen(function* () {
      const hung = world(() => new Promise<never>(() => {}))
      // The client counts by the system's clock, which a test does not stop.
      const before = Date.now()
      for (const call of [hung.runs.find(runId), hung.runs.underWay("acme"), hung.runs.cancel(runId)]) {
        const asking = yield* Effect.forkChild(Effect.flip(call), { startImmediately: true })
        yield* TestClock.adjust("5 seconds")
        const { isRetryable, message } = yield* Fiber.join(asking)
        assert.isTrue(isRetryable)
        assert.include(message, "did not answer in 5 seconds")
      }
      assert.lengthOf(hung.deadlines, 3)
      for (const deadline of hung.deadlines) {
        assert.isAtLeast(deadline, before + 5000)
        assert.isAtMost(deadline, Date.now() + 5000)
      }
      // It has the run, and does not tell its outcome.
      const half = world(() => Promise.resolve(workflow({ owner: "acme", status: "COMPLETED" })))
      const asking = yield* Effect.forkChild(Effect.flip(half.runs.find(runId)), { startImmediately: true })
      yield* Effect.promise(() => Promise.resolve())
      yield* TestClock.adjust("5 seconds")
      assert.isTrue((yield* Fiber.join(asking)).isRetryable)
    })
  )
})
