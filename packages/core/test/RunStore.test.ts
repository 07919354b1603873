import { assert, describe, it } from "@effect/vitest"
import { RunId, RunStore } from "@cogni/sandbox-core"
import * as GoodPosture from "../src/internal/GoodPosture.ts"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as RecordForms from "@cogni/sandbox-core/RecordForms"
import * as RunRecord from "@cogni/sandbox-core/RunRecord"
import type * as RunFigures from "@cogni/sandbox-core/RunFigures"
import { RunStoreContract } from "@cogni/sandbox-core/testing"
import { Effect, Schema } from "effect"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { containerSpec } from "./Specs.ts"

RunStoreContract.suite("memory", RunStore.layerMemory)

const codec = Schema.toCodecJson(RunRecord.RunRecord)

/** A record with everything that a proxy that reads bodies can report. */
const full = Effect.gen(function* () {
  const runId = RunId.RunId.make("run-store0000002")
  const evidence: RunFigures.Evidence = {
    at: "2026-01-01T00:00:01.000Z",
    canary: "aws_secret_access_key",
    encoding: "base64",
    channel: "tool_call",
    requestId: "8f14e45f-ceea-467f-9575-1d5f6c0e0c4a"
  }
  const llm: RunFigures.LlmTraffic = {
    proxy: "gateway",
    upstream: "http://127.0.0.1:4000",
    calls: [
      {
        at: "2026-01-01T00:00:00.000Z",
        requestId: "c1",
        method: "POST",
        path: "/v1/messages",
        status: 200,
        requestBytes: 10,
        responseBytes: 20,
        durationMs: 1.5,
        completed: false,
        outcome: "client_aborted",
        model: "m-upstream",
        usage: { inputTokens: 9, outputTokens: 0, cacheReadTokens: 4, cacheWriteTokens: 1, costUsd: 0.25 }
      }
    ],
    callsTotal: 1,
    unreadableRows: 0,
    injectedHeaders: [],
    auditPath: "/state/runs/run-store0000002/audit",
    auditHead: { entries: 3, hash: "0123456789abcdef".repeat(4) },
    usage: {
      calls: 1,
      inputTokens: 9,
      outputTokens: 0,
      cacheReadTokens: 4,
      cacheWriteTokens: 1,
      costUsd: 0.25,
      callsWithoutUsage: 0,
      callsWithoutCost: 0
    },
    exhausted: { budget: "cost_usd", limit: 0.2, used: 0.25 },
    toolCallsTotal: 2
  }
  const spec = yield* SpecDecoder.decode({
    image: "agent",
    argv: ["agent"],
    llm: {
      model: "m",
      models: { fast: "m-fast" },
      identity: { billingAccountId: "b" },
      budget: { costUsdMax: 0.2, onExhausted: "stop" },
      unknownFields: "refuse"
    },
    tools: ["core__get_current_time"],
    canaries: "warn"
  })
  const empty = { text: "", bytes: 0, truncated: false }
  return {
    runId,
    spec,
    owner: "boot/1/1",
    startedAt: "2026-01-01T00:00:00.000Z",
    endedAt: "2026-01-01T00:00:02.000Z",
    outcome: {
      status: "exited",
      result: {
        runId,
        exitCode: 0,
        output: { stdout: empty, stderr: empty },
        peak: {},
        posture: GoodPosture.goodPosture(containerSpec(runId)),
        llm,
        suspicions: [evidence],
        timings: [],
        durationMs: 2000
      }
    },
    llm,
    suspicions: [evidence],
    timings: []
  } satisfies RunRecord.RunRecord
})

/** A record that was written before budgets, tools and canaries existed. */
const old = (posture: object) => ({
  runId: "run-store0000003",
  spec: {
    image: "agent",
    argv: ["agent"],
    env: {},
    workspace: { type: "temporary" },
    inputs: [],
    limits: {
      runtimeSecondsMax: 600,
      stopGraceSecondsMax: 5,
      memoryBytesMax: 1073741824,
      processesMax: 256,
      cpusMax: 2,
      outputBytesMax: 67108864,
      outputRetainedBytesMax: 4194304,
      workspaceBytesMax: 2147483648,
      temporaryBytesMax: 268435456,
      filesOpenMax: 4096
    },
    network: { mode: "none" },
    llm: { model: "m", identity: { billingAccountId: "b", attempt: 0 } }
  },
  owner: "boot/1/1",
  startedAt: "2026-01-01T00:00:00.000Z",
  endedAt: "2026-01-01T00:00:02.000Z",
  outcome: {
    status: "exited",
    result: {
      runId: "run-store0000003",
      exitCode: 0,
      output: {
        stdout: { text: "", bytes: 0, truncated: false },
        stderr: { text: "", bytes: 0, truncated: false }
      },
      peak: {},
      posture,
      llm: oldTraffic,
      timings: [],
      durationMs: 2000
    }
  },
  posture,
  llm: oldTraffic,
  timings: []
})

const oldTraffic = {
  proxy: "nginx",
  upstream: "http://127.0.0.1:4000",
  calls: [
    {
      at: "2026-01-01T00:00:00.000Z",
      requestId: "c1",
      method: "POST",
      path: "/v1/messages",
      status: 200,
      requestBytes: 10,
      responseBytes: 20,
      durationMs: 1.5,
      completed: true
    }
  ],
  callsTotal: 1,
  unreadableRows: 0,
  injectedHeaders: ["authorization"]
}

describe("RunStore", () => {
  it.effect("preserves budgets, usage, suspicions and the audit's head in a record", () =>
    Effect.gen(function* () {
      const record = yield* full
      const wire = JSON.parse(JSON.stringify(yield* Schema.encodeEffect(codec)(record)))
      assert.deepStrictEqual(yield* Schema.decodeUnknownEffect(codec)(wire), record)
    })
  )

  it.effect("reads a record from before budgets, tools and canaries existed as one without them", () =>
    Effect.gen(function* () {
      const posture = GoodPosture.goodPosture(containerSpec(RunId.RunId.make("run-store0000003")))
      const read = yield* Schema.decodeUnknownEffect(codec)(old(posture))
      assert.deepStrictEqual(
        [read.spec.tools, read.spec.canaries, read.spec.llm?.models, read.spec.llm?.unknownFields],
        [[], "off", {}, "drop"]
      )
      assert.isUndefined(read.suspicions)
      assert.isUndefined(read.llm?.usage)
      assert.deepStrictEqual(read.outcome.status === "exited" && read.outcome.result.suspicions, [])
    })
  )

  it.effect.prop(
    "a record survives its JSON form",
    [RunRecord.RunRecord],
    ([record]) =>
      Effect.gen(function* () {
        const wire = JSON.stringify(yield* Schema.encodeEffect(codec)(record))
        const back = yield* Schema.decodeUnknownEffect(codec)(JSON.parse(wire))
        assert.strictEqual(JSON.stringify(yield* Schema.encodeEffect(codec)(back)), wire)
      }),
    { arbitrary: { runs: 100, seed: "run-record" } }
  )

  it.effect.prop(
    "a brief has the facts of its record, and nothing that grows with the run or its prompt",
    [RunRecord.RunRecord],
    ([record]) =>
      Effect.gen(function* () {
        const brief = RecordForms.briefOf(record)
        assert.deepStrictEqual(RunFacts.of(brief), RunFacts.of(record))
        assert.deepStrictEqual(RecordForms.briefOf(brief), brief)
        const { outcome, spec } = brief
        assert.deepStrictEqual([spec.inputs, spec.env, spec.argv.length], [[], {}, 1])
        assert.deepStrictEqual(brief.llm?.calls ?? [], [])
        assert.deepStrictEqual(outcome.status === "exited" ? (outcome.result.llm?.calls ?? []) : [], [])
        // It is stored as a record is.
        const wire = yield* Schema.encodeEffect(codec)(brief)
        assert.deepStrictEqual(yield* Schema.decodeUnknownEffect(codec)(wire), brief)
      }),
    { arbitrary: { runs: 100, seed: "run-brief" } }
  )

  it.effect("keeps the first record when its ID is claimed again", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.RunStore
      const runId = RunId.RunId.make("run-store0000001")
      const first = yield* SpecDecoder.decode({ image: "one", argv: ["true"] })
      const second = yield* SpecDecoder.decode({ image: "two", argv: ["true"] })
      yield* store.open(runId, first)
      yield* Effect.flip(store.open(runId, second))
      assert.strictEqual((yield* store.get(runId))?.spec.image, "one")
    }).pipe(Effect.provide(RunStore.layerMemory))
  )
})
