/**
 * Errors of `task` that need no engine, with one line and one exit code each, and the plan that flags and environment
 * give: a sandbox configured as for a run, whose model the host asks.
 */
import { assert, describe, it } from "@effect/vitest"
import { absent } from "./AbsentSettings.ts"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import type { Settings } from "../src/Settings.ts"
import * as TaskCommand from "../src/TaskCommand.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Redacted, Result } from "effect"
import { TestConsole } from "effect/testing"

const cli = (words: string) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: words.split(" "),
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all" }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    const { stderr, stdout } = memory.said
    return { code, stderr, stdout, help: (yield* TestConsole.logLines).join("\n") }
  })

describe("task", () => {
  it.effect.each([
    ["task", 64, "there is nothing to do"],
    ["task x --prompt-file y", 64, "two prompts"],
    ["task x y", 64, "y"],
    ["task x --steps-max 0", 64, "--steps-max"],
    ["task x --steps-max many", 64, "--steps-max"],
    ["task x --agent codex", 64, "--agent"],
    ["task x --run-id UP", 65, '--run-id "UP" is not a'],
    ["task x", 78, "COGNI_LLM_URL"],
    ["task --prompt-file /proc/nowhere/at/all --demo", 66, "/proc/nowhere/at/all"],
    ["task x -- ls", 64, "only run takes a command"]
  ] as const)("%s", ([words, code, says]) =>
    Effect.gen(function* () {
      const ended = yield* cli(words)
      assert.strictEqual(ended.stdout, "")
      assert.include(ended.stderr, says)
      assert.strictEqual(ended.stderr.split("\n").length, 2)
      assert.isTrue(ended.stderr.startsWith("cogni-sandbox: "))
      assert.strictEqual(ended.code, code)
    })
  )

  it.effect("prints its flags and exit codes with --help", () =>
    Effect.gen(function* () {
      const { help } = yield* cli("task --help")
      for (const word of [
        "--workspace",
        "--steps-max",
        "--patch",
        "--model",
        "120  limit: the model budget"
      ]) {
        assert.include(help, word)
      }
    })
  )
})

const settings: Settings["Service"] = {
  ...absent,
  upstream: { _tag: "Configured", url: "http://127.0.0.1:4000", key: Redacted.make("sk-planted") },
  model: "m1"
}

const runId = RunId.make("run-000000000001")
const planned = (over: Parameters<typeof TaskCommand.plan>[0] = {}, given = settings) =>
  Result.getOrThrow(TaskCommand.plan(over, runId, given))
const refused = (over: Parameters<typeof TaskCommand.plan>[0], given: Settings["Service"]) => {
  const made = TaskCommand.plan(over, runId, given)
  return Result.isFailure(made) ? made.failure : assert.fail("it was planned")
}

describe("the plan of a task", () => {
  it.effect("is a sandbox without an agent, whose model the host asks on behalf of the account", () =>
    Effect.gen(function* () {
      const plan = planned({ workspace: "/work" })
      const spec = yield* SpecDecoder.decodeOpen(plan.task.spec)
      assert.notProperty(plan.task.spec, "argv")
      assert.deepInclude(spec.llm, {
        model: "m1",
        caller: "host",
        identity: { billingAccountId: "acct", attempt: 0, graphId: "sandbox:task", agentId: "task" }
      })
      assert.deepInclude(spec, {
        runId,
        image: "cogni/runtime:1",
        workspace: { type: "directory", path: "/work" }
      })
      assert.deepInclude(plan.wayOut, { _tag: "Upstream", model: "m1" })
      assert.notInclude(JSON.stringify(plan), "sk-planted")
    })
  )

  it("gives the loop its time, and the sandbox more time to make the patch", () => {
    const plan = planned({ timeoutSeconds: 60, stepsMax: 7, memoryBytes: 1024 ** 3 })
    assert.deepStrictEqual(plan.task.limits, { runtimeSecondsMax: 60, stepsMax: 7 })
    assert.isAtLeast(plan.task.spec.limits?.runtimeSecondsMax ?? 0, 180)
    assert.strictEqual(plan.task.spec.limits?.memoryBytesMax, 1024 ** 3)
    assert.deepStrictEqual(planned().task.limits, { runtimeSecondsMax: 1800 })
    assert.strictEqual(planned({ timeoutSeconds: 86_400 }).task.spec.limits?.runtimeSecondsMax, 86_400)
  })

  it("has budgets that refuse calls instead of ending the run, so that no work is lost", () => {
    assert.deepStrictEqual(planned({ callsMax: 3, costUsdMax: 1 }).task.spec.llm?.budget, {
      callsMax: 3,
      costUsdMax: 1
    })
    assert.notProperty(planned().task.spec.llm ?? {}, "budget")
  })

  it("requires a model: the flag's, the environment's, or the demo upstream's", () => {
    assert.strictEqual(planned({ model: "m2" }).task.spec.llm?.model, "m2")
    assert.include(refused({}, { ...settings, model: undefined }).message, "COGNI_LLM_MODEL")
    assert.strictEqual(refused({}, { ...settings, upstream: { _tag: "Absent" } }).exit, "configuration")
    const demo = planned({ demo: true }, { ...settings, upstream: { _tag: "Absent" }, model: undefined })
    assert.deepStrictEqual(demo.wayOut, { _tag: "Demo", model: "demo" })
    assert.strictEqual(demo.task.spec.llm?.caller, "host")
    assert.include(demo.note ?? "", "no model is asked")
  })
})
