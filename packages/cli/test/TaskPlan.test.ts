/** From flags and environment to the sandbox of a task: held as a run is, and asked for by the host. */
import { assert, describe, it } from "@effect/vitest"
import type { Settings } from "../src/Settings.ts"
import * as TaskPlan from "../src/TaskPlan.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { Effect, Redacted, Result } from "effect"

const settings: Settings["Service"] = {
  stateDirectory: "/state",
  database: Result.succeed({ address: { _tag: "Sqlite", path: "/state/cogni.db" }, variable: undefined }),
  databaseFile: undefined,
  dockerHost: undefined,
  runtimeImage: "cogni/runtime:1",
  proxyImage: "cogni/proxy:1",
  gatewayImage: "cogni/gateway:1",
  imageOf: (image) => `cogni/${image}:1`,
  prices: undefined,
  prometheusUrl: undefined,
  keyHeader: "authorization",
  keyFile: undefined,
  upstream: { _tag: "Configured", url: "http://127.0.0.1:4000", key: Redacted.make("sk-planted") },
  model: "m1",
  billingAccountId: "acct",
  sandboxEnabled: false,
  git: Result.succeed({
    tokens: [],
    gitHubServer: "https://github.com",
    gitHubApi: undefined,
    gitLabServer: "https://gitlab.com",
    forges: [],
    network: { caFile: undefined, proxyUrl: undefined, noProxy: undefined },
    policies: CommitPolicy.defaults
  })
}

const runId = RunId.make("run-000000000001")
const flags: TaskPlan.TaskFlags = { canaries: "off", demo: false }

const planned = (over: Partial<TaskPlan.TaskFlags> = {}, given = settings) =>
  Result.getOrThrow(TaskPlan.make({ ...flags, ...over }, runId, given))
const refused = (over: Partial<TaskPlan.TaskFlags>, given: Settings["Service"]) => {
  const made = TaskPlan.make({ ...flags, ...over }, runId, given)
  return Result.isFailure(made) ? made.failure : assert.fail("it was planned")
}

describe("TaskPlan", () => {
  it.effect("is a sandbox whose model the host asks, in the account's name, and no agent", () =>
    Effect.gen(function* () {
      const plan = planned({ workspace: "/work" })
      const spec = yield* SandboxSpec.decode({ ...plan.spec, argv: ["x"] })
      assert.notProperty(plan.spec, "argv")
      assert.deepInclude(spec.llm, {
        model: "m1",
        caller: "host",
        identity: { billingAccountId: "acct", attempt: 0, graphId: "sandbox:task" }
      })
      assert.deepInclude(spec, {
        runId,
        image: "cogni/runtime:1",
        workspace: { type: "directory", path: "/work" }
      })
      assert.deepInclude(plan.wayOut, { _tag: "Upstream", model: "m1" })
      assert.strictEqual(plan.model, "m1")
      assert.notInclude(JSON.stringify(plan), "sk-planted")
    })
  )

  it("gives the loop its time, and the sandbox enough to make the patch after it", () => {
    const plan = planned({ timeoutSeconds: 60, stepsMax: 7, memoryBytes: 1024 ** 3 })
    assert.deepStrictEqual(plan.limits, { runtimeSecondsMax: 60, stepsMax: 7 })
    assert.isAtLeast(plan.spec.limits?.runtimeSecondsMax ?? 0, 180)
    assert.strictEqual(plan.spec.limits?.memoryBytesMax, 1024 ** 3)
    assert.deepStrictEqual(planned().limits, { runtimeSecondsMax: 1800 })
    assert.strictEqual(planned({ timeoutSeconds: 86_400 }).spec.limits?.runtimeSecondsMax, 86_400)
  })

  it("has budgets that refuse, so that what was done is not lost", () => {
    assert.deepStrictEqual(planned({ callsMax: 3, costUsdMax: 1 }).spec.llm?.budget, {
      callsMax: 3,
      costUsdMax: 1
    })
    assert.notProperty(planned().spec.llm ?? {}, "budget")
  })

  it("needs a model: the flag's, the environment's, or the demo", () => {
    assert.strictEqual(planned({ model: "m2" }).spec.llm?.model, "m2")
    assert.strictEqual(planned({ model: "m2" }).model, "m2")
    assert.include(refused({}, { ...settings, model: undefined }).message, "COGNI_LLM_MODEL")
    assert.strictEqual(refused({}, { ...settings, upstream: { _tag: "Absent" } }).exit, "configuration")
    const demo = planned({ demo: true }, { ...settings, upstream: { _tag: "Absent" }, model: undefined })
    assert.deepStrictEqual(demo.wayOut, { _tag: "Demo", model: "demo" })
    assert.strictEqual(demo.spec.llm?.caller, "host")
    assert.include(demo.note ?? "", "no model is asked")
  })
})
