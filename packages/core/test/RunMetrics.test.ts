/** Metrics of runs, in Effect's registry, for every kind of end. */
import { assert, describe, it } from "@effect/vitest"
import { LlmProxy, MemoryContainerRuntime, RunId, SandboxRunner } from "@cogni/sandbox-core"
import * as Approval from "@cogni/sandbox-core/Approval"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { Deferred, Effect, Fiber, Layer, Metric } from "effect"
import * as RunMetrics from "../src/internal/RunMetrics.ts"
import { llm, run, runner, spec } from "./Specs.ts"

/** Returns the value of a counter or gauge, and the number of observations of a histogram. */
const valueOf = (found: Metric.Metric.Snapshot): number | bigint | undefined => {
  switch (found.type) {
    case "Counter":
    case "Histogram":
      return found.state.count
    case "Gauge":
      return found.state.value
    default:
      return undefined
  }
}

/** All metrics of the library, as `name{labels}` with their value. */
const metrics = Effect.map(Metric.snapshot, (all) =>
  Object.fromEntries(
    all
      .filter(({ id }) => id.startsWith("sandbox_"))
      .map((found) => {
        const labels = Object.entries(found.attributes ?? {}).map(([name, value]) => `${name}=${value}`)
        return [`${found.id}${labels.length === 0 ? "" : `{${labels.join(",")}}`}`, valueOf(found)] as const
      })
  )
)

/** Gives each test its own registry. */
const isolated = <A, E, R>(test: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => Effect.provideService(test, Metric.MetricRegistry, new Map()))

const approval = Approval.begin(
  {
    runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
    billingAccountId: "acct",
    requestId: "r1",
    tool: "acme__pay",
    effect: "external_side_effect",
    arguments: '{"text":"secret"}',
    argumentsDigest: "digest",
    askedBy: {},
    waitSecondsMax: 60
  },
  0
)

const { argv: _argv, runId: _runId, ...openSpec } = spec

describe("RunMetrics", () => {
  it.effect("counts a run, its model calls, their tokens and their cost", () =>
    Effect.gen(function* () {
      yield* run({ ...spec, llm })
      assert.deepStrictEqual(yield* metrics, {
        sandbox_open: 0,
        "sandbox_run_duration_seconds{agent=none}": 1,
        ...Object.fromEntries(
          ["workspace", "socket", "create", "start", "proxy", "entrypoint", "agent", "collect"].map(
            (phase) => [`sandbox_run_phase_duration_seconds{phase=${phase}}`, 1]
          )
        ),
        "sandbox_runs_started_total{agent=none}": 1,
        "sandbox_runs_total{agent=none,status=succeeded}": 1,
        "sandbox_model_calls_total{outcome=completed}": 2,
        sandbox_model_call_duration_seconds: 2,
        "sandbox_model_tokens_total{type=input}": 12,
        "sandbox_model_tokens_total{type=output}": 5,
        "sandbox_model_tokens_total{type=cache_read}": 4,
        sandbox_model_cost_usd_total: 0.5
      })
    }).pipe(
      Effect.provide(
        runner({
          program: () => Effect.succeed(0),
          proxy: LlmProxy.layerMemory({
            calls: [
              { inputTokens: 7, outputTokens: 3, costUsd: 0.5 },
              { inputTokens: 5, outputTokens: 2, cacheReadTokens: 4 }
            ]
          })
        })
      ),
      isolated
    )
  )

  it.effect("counts agents by name, up to a number, and what is left of budgets", () =>
    Effect.gen(function* () {
      const identity = { ...llm.identity, agentId: "codex" }
      yield* run({ ...spec, llm: { ...llm, identity, budget: { callsMax: 4, costUsdMax: 0.5 } } })
      const found = yield* metrics
      assert.strictEqual(found["sandbox_runs_total{agent=codex,status=succeeded}"], 1)
      assert.strictEqual(found["sandbox_run_budget_left_ratio{budget=calls}"], 1)
      assert.strictEqual(found["sandbox_run_budget_left_ratio{budget=cost_usd}"], 1)
      assert.isUndefined(found["sandbox_run_budget_left_ratio{budget=input_tokens}"])
      const labels = RunMetrics.makeLabels(2)
      assert.deepStrictEqual(["a", "b", "c", "a", 'x"y', undefined].map(labels), [
        "a",
        "b",
        "other",
        "a",
        "other",
        "none"
      ])
    }).pipe(
      Effect.provide(
        runner({
          program: () => Effect.succeed(0),
          proxy: LlmProxy.layerMemory({ calls: [{ costUsd: 0.5 }, { costUsd: 0 }] })
        })
      ),
      isolated
    )
  )

  it.effect("counts a failure by its reason, and a refused spec apart from runs", () =>
    Effect.gen(function* () {
      yield* Effect.flip(run())
      yield* Effect.flip(run({ ...spec, image: "" }))
      const found = yield* metrics
      assert.strictEqual(found["sandbox_runs_total{agent=none,status=ImageNotFound}"], 1)
      assert.strictEqual(found["sandbox_runs_refused_total{reason=InvalidSpec}"], 1)
      assert.strictEqual(found["sandbox_runs_started_total{agent=none}"], 1)
      assert.strictEqual(found["sandbox_open"], 0)
    }).pipe(
      Effect.provide(runner({ runtime: MemoryContainerRuntime.layer({ images: new Set() }) })),
      isolated
    )
  )

  it.effect("counts approvals of tool calls by their end, which the journal tells without arguments", () =>
    Effect.gen(function* () {
      const { runId } = yield* run({ ...spec, llm })
      assert.strictEqual((yield* metrics)["sandbox_tool_approvals_total{decision=denied}"], 1)
      const journal = yield* RunJournal.RunJournal
      const page = yield* journal.read({ runId })
      const entries = page?.entries.filter(({ type }) => type.startsWith("tool.")) ?? []
      assert.containSubset(entries, [
        { type: "tool.approval_requested", tool: "acme__pay", argumentsDigest: "digest" },
        { type: "tool.approval_decided", decision: "denied", decidedBy: { type: "operator", id: "ana" } }
      ])
      assert.lengthOf(entries, 2)
      assert.notInclude(JSON.stringify(entries), "secret")
    }).pipe(
      Effect.provide(
        Layer.provideMerge(
          runner({
            program: () => Effect.succeed(0),
            proxy: LlmProxy.layerMemory({
              observations: [
                { _tag: "ApprovalRequested", approval },
                {
                  _tag: "ApprovalDecided",
                  approval: Approval.end(
                    approval,
                    { status: "denied", decidedBy: { type: "operator", id: "ana" } },
                    0
                  )
                }
              ]
            })
          }),
          RunJournal.layerMemory
        )
      ),
      isolated
    )
  )

  it.effect("shows open sandboxes until they are closed", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* SandboxRunner.SandboxRunner.use((made) => made.open(openSpec))
          yield* SandboxRunner.SandboxRunner.use((made) => made.open(openSpec))
          assert.strictEqual((yield* metrics)["sandbox_open"], 2)
        })
      )
      const found = yield* metrics
      assert.strictEqual(found["sandbox_open"], 0)
      assert.strictEqual(found["sandbox_runs_total{agent=none,status=closed}"], 2)
    }).pipe(Effect.provide(runner({ program: ({ terminated }) => Effect.as(terminated, 143) })), isolated)
  )

  it.effect("counts an interrupted run once, as interrupted", () =>
    Effect.gen(function* () {
      const begun = yield* Deferred.make<void>()
      yield* Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run(), { startImmediately: true })
        yield* Deferred.await(begun)
        yield* Fiber.interrupt(fiber)
        const found = yield* metrics
        assert.strictEqual(found["sandbox_runs_total{agent=none,status=interrupted}"], 1)
        assert.strictEqual(found["sandbox_runs_started_total{agent=none}"], 1)
        assert.strictEqual(found["sandbox_open"], 0)
      }).pipe(
        Effect.provide(
          runner({ program: () => Effect.andThen(Deferred.succeed(begun, undefined), Effect.never) })
        )
      )
    }).pipe(isolated)
  )
})
