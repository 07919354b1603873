/** Graph runs on an in-memory runner: their events, and their ends whatever their readers do. */
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { assert, describe, it } from "@effect/vitest"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { Effect, Fiber, Result, Stream } from "effect"
import { TestClock } from "effect/testing"
import { context, envelope, grantOf, Heard, refusal, request, run, told, world } from "./GraphWorld.ts"

/** An agent that emits every character as an event. */
const talker: Agent = {
  ...minimal,
  id: AgentId.make("talker"),
  reader: AgentOutput.make({
    initial: undefined,
    feed: (_, text) => [[...text].map((delta) => ({ type: "text_delta", delta })), undefined],
    end: () => Result.succeed({ text: "all of it" })
  })
}

/** An agent that emits every line as an event. */
const printer: Agent = {
  ...minimal,
  id: AgentId.make("printer"),
  reader: AgentOutput.jsonLines<string>({
    initial: "",
    line: (_, value) => {
      const { text } = value as { readonly text: string }
      return [[{ type: "text_delta", delta: text }], text]
    },
    end: (text) => Result.succeed({ text })
  })
}

const { subagents: _, ...unmarkedCapabilities } = minimal.capabilities
/** An agent that may start subagents, and does not mark their calls. */
const unmarked: Agent = { ...minimal, id: AgentId.make("unmarked"), capabilities: unmarkedCapabilities }

describe("SandboxGraphProvider", () => {
  it.effect("emits the text of an answer, then the whole answer, the usage, and done", () =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request())
      assert.deepStrictEqual(
        events.filter(({ type }) => type !== "status").map(({ type }) => type),
        ["text_delta", "assistant_final", "usage_report", "done"]
      )
      assert.containSubset(final, { ok: true, content: "Lima", finishReason: "stop", requestId: "req-1" })
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  )

  it.effect(
    "tells the ledger the tokens and the cost of scripted calls, without Docker and without a model",
    () => {
      return Effect.gen(function* () {
        const { final } = yield* told(request())
        const { ends } = yield* Heard
        assert.deepStrictEqual(final.usage, { promptTokens: 12, completionTokens: 5 })
        assert.deepStrictEqual(
          ends
            .flatMap(({ facts }) => facts)
            .map(({ costUsd, inputTokens, outputTokens }) => [inputTokens, outputTokens, costUsd]),
          [
            [7, 3, 0.25],
            [5, 2, undefined]
          ]
        )
      }).pipe(
        Effect.provide(
          world({
            program: (io) => Effect.as(io.stdout(envelope("Lima")), 0),
            calls: [
              { inputTokens: 7, outputTokens: 3, costUsd: 0.25 },
              { inputTokens: 5, outputTokens: 2 }
            ]
          })
        )
      )
    }
  )

  it.effect("reports an answer with a non-zero exit code as a failure that keeps the text", () =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "internal", reason: "AgentFailed", content: "Lima" })
      assert.deepStrictEqual(
        events.slice(-3).map(({ type }) => type),
        ["usage_report", "error", "done"]
      )
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 137) })))
  )

  it.effect.each<[string, string | Uint8Array]>([
    ["half an envelope", envelope("Lima").slice(0, 20)],
    ["an envelope after noise", `warming up\n${envelope("Lima")}`],
    ["two envelopes", `${envelope("Lima")}\n${envelope("Oslo")}`],
    ["bytes that are not text", new Uint8Array([0xff, 0xfe, 0x00, 0x80])],
    ["no output", ""]
  ])("reports %s as a missing answer", ([, output]) =>
    Effect.gen(function* () {
      const { final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "internal", reason: "AgentFailed" })
      assert.include(final.message ?? "", "the agent gave no answer")
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(output), 0) })))
  )

  it.effect(
    "ends an agent that hangs after its answer at the time limit, and reports a timeout, not an answer",
    () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(told(request({ runtimeSecondsMax: 10 })))
        yield* TestClock.adjust("1 minute")
        const { final } = yield* Fiber.join(fiber)
        assert.containSubset(final, { ok: false, error: "timeout", reason: "TimedOut" })
      }).pipe(
        Effect.provide(world({ program: (io) => Effect.andThen(io.stdout(envelope("Lima")), Effect.never) }))
      )
  )

  it.effect("reports OomKilled as the reason beside the coarse code", () =>
    Effect.gen(function* () {
      const { final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "internal", reason: "OomKilled" })
    }).pipe(
      Effect.provide(
        world({
          program: (io) =>
            Effect.as(io.stdout(envelope("Lima")), {
              exitCode: 137,
              oomKilled: true,
              processesRefused: false,
              peak: {}
            })
        })
      )
    )
  )

  it.effect("limits the text that is kept of an incomplete answer", () =>
    Effect.gen(function* () {
      const { final } = yield* told(request({ graphId: "sandbox:printer" }))
      assert.strictEqual(final.reason, "OomKilled")
      assert.isAtLeast(final.content?.length ?? 0, 1024 * 1024)
      assert.isAtMost(final.content?.length ?? 0, 2 * 1024 * 1024)
    }).pipe(
      Effect.provide(
        world({
          agents: [printer],
          program: (io) =>
            Effect.replicateEffect(
              io.stdout(`${JSON.stringify({ text: "x".repeat(64 * 1024) })}\n`),
              100
            ).pipe(Effect.as({ exitCode: 137, oomKilled: true, processesRefused: false, peak: {} }))
        })
      )
    )
  )

  it.effect("reports the cancellation of a run to its reader", () =>
    Effect.gen(function* () {
      const { events, final } = yield* Effect.scoped(
        Effect.gen(function* () {
          const live = yield* run(request())
          const reading = yield* Effect.forkChild(Stream.runCollect(live.events))
          yield* Effect.yieldNow
          yield* live.cancel
          return { events: [...(yield* Fiber.join(reading))], final: yield* live.final }
        })
      )
      assert.containSubset(final, { ok: false, error: "aborted", reason: "Aborted" })
      assert.deepStrictEqual(
        events.slice(-3).map(({ type }) => type),
        ["usage_report", "error", "done"]
      )
    }).pipe(Effect.provide(world({ program: () => Effect.never })))
  )

  it.effect("ends a run whose events are not read for too long, so that the queue stays bounded", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(
        Effect.scoped(
          Effect.gen(function* () {
            const live = yield* run(request({ graphId: "sandbox:talker", runtimeSecondsMax: 3600 }))
            yield* Effect.forkChild(Stream.runForEach(live.events, () => Effect.never))
            return yield* live.final
          })
        )
      )
      yield* TestClock.adjust("2 minutes")
      const final = yield* Fiber.join(fiber)
      assert.containSubset(final, { ok: false, error: "aborted", reason: "Aborted" })
      assert.include(final.message ?? "", "not read for too long")
    }).pipe(
      Effect.provide(world({ agents: [talker], program: (io) => Effect.forever(io.stdout("x".repeat(500))) }))
    )
  )

  it.effect("sends every event to a slow reader", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(
        Effect.scoped(
          Effect.gen(function* () {
            const live = yield* run(request({ graphId: "sandbox:talker" }))
            let deltas = 0
            yield* Stream.runForEach(live.events, ({ type }) => {
              if (type === "text_delta") deltas++
              return Effect.asVoid(Effect.timeoutOption(Effect.never, "100 millis"))
            })
            return deltas
          })
        )
      )
      yield* TestClock.adjust("10 minutes")
      assert.isAtLeast(yield* Fiber.join(fiber), 3000)
    }).pipe(
      Effect.provide(world({ agents: [talker], program: (io) => Effect.as(io.stdout("x".repeat(3000)), 0) }))
    )
  )

  it.effect("emits 100,000 lines as 100,000 events, in order", () =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request({ graphId: "sandbox:printer" }))
      const deltas = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : []))
      assert.strictEqual(deltas.length, 100_000)
      assert.isTrue(deltas.every((delta, index) => delta === String(index)))
      assert.strictEqual(final.content, "99999")
    }).pipe(
      Effect.provide(
        world({
          agents: [printer],
          program: (io) =>
            Effect.as(
              Effect.forEach(
                Array.from({ length: 100 }, (_, piece) =>
                  Array.from({ length: 1000 }, (_line, line) => `{"text":"${piece * 1000 + line}"}\n`).join(
                    ""
                  )
                ),
                io.stdout,
                { discard: true }
              ),
              0
            )
        })
      )
    )
  )

  it.effect("calls the observer that it was built with, not one of the fiber that starts a run", () => {
    const others: Array<GraphObserver.ObservedEnd> = []
    return Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const live = yield* Effect.provideService(run(request()), GraphObserver.GraphObserver, {
            observe: (end) => Effect.sync(() => void others.push(end))
          })
          yield* Stream.runDrain(live.events)
        })
      )
      const { ends } = yield* Heard
      assert.deepStrictEqual(
        ends.map(({ final }) => final.runId),
        [context.runId]
      )
      assert.deepStrictEqual(others, [])
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  })

  it.effect("records the grant of the run, and the digest of its events", () =>
    Effect.gen(function* () {
      const { events } = yield* told(request())
      const store = yield* RunStore
      const record = yield* store.get(context.runId)
      assert.containSubset(record?.annotations?.["graph"], {
        graphId: "sandbox:agent",
        grantId: context.grantId,
        ok: true,
        events: { count: events.length }
      })
      assert.containSubset(record?.spec.llm?.identity, {
        billingAccountId: "acct",
        userId: "user",
        attempt: 2
      })
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  )
})

describe("SandboxGraphProvider refusals", () => {
  const none = () => Effect.die(new Error("a sandbox was made"))

  it.effect.each<[string, Parameters<typeof world>[0], Parameters<typeof request>[0], string, string]>([
    ["disabled", { enabled: false }, {}, "policy_denied", "SandboxDisabled"],
    ["no grant", { grants: [] }, {}, "authz_denied", "GrantNotFound"],
    ["revoked", { grants: [grantOf({ revokedAt: new Date(0) })] }, {}, "authz_denied", "GrantRevoked"],
    ["expired", { grants: [grantOf({ expiresAt: new Date(0) })] }, {}, "authz_denied", "GrantExpired"],
    [
      "a grant for another graph",
      { grants: [grantOf({ scopes: ["graph:execute:sandbox:codex"] })] },
      {},
      "authz_denied",
      "GrantScopeMismatch"
    ],
    [
      "a wildcard scope alone",
      { grants: [grantOf({ scopes: ["graph:execute:*"], allowSandbox: false })] },
      {},
      "authz_denied",
      "SandboxNotAllowed"
    ],
    [
      "an account of another user",
      {},
      { caller: { ...request().caller, billingAccountId: "other" } },
      "authz_denied",
      "GrantAccountMismatch"
    ],
    ["unknown agent", {}, { graphId: "sandbox:nobody" }, "not_found", "AgentNotFound"],
    [
      "a personality for an agent without personalities",
      {},
      { personality: "sage" },
      "invalid_request",
      "CapabilityMissing"
    ],
    [
      "an unknown personality",
      {},
      { graphId: "sandbox:openclaw", personality: "constructor" },
      "invalid_request",
      "CapabilityMissing"
    ],
    [
      "a share for subagents of an agent that may not mark them",
      { agents: [unmarked] },
      { graphId: "sandbox:unmarked", budget: { subagentShareMax: 0.3, onExhausted: "refuse" } },
      "invalid_request",
      "CapabilityMissing"
    ],
    [
      "a repository without a relay",
      {},
      { graphId: "sandbox:worker", repository: { url: "https://example.org/x" } },
      "invalid_request",
      "RelayAbsent"
    ],
    [
      "ten megabytes of history",
      {},
      { messages: [{ role: "user", content: "x".repeat(10 * 1024 * 1024) }] },
      "invalid_request",
      "InvalidSpec"
    ]
  ])("refuses a run: %s", ([, options, over, error, reason]) =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request(over))
      assert.containSubset(final, { ok: false, error, reason })
      assert.isAbove(final.message?.length ?? 0, 20)
      assert.deepStrictEqual(
        events.map(({ type }) => type),
        ["usage_report", "error", "done"]
      )
      const refused = yield* refusal(request(over))
      assert.deepStrictEqual([refused.error, refused.reason], [error, reason])
      assert.deepStrictEqual(yield* (yield* RunStore).list, [])
    }).pipe(Effect.provide(world({ program: none, ...options })))
  )

  it.effect("refuses a run ID that was used before, and does not change the record of that run", () =>
    Effect.gen(function* () {
      yield* told(request())
      const store = yield* RunStore
      const before = yield* store.get(RunId.make(context.runId))
      const { final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "invalid_request", reason: "RunIdInUse" })
      assert.deepStrictEqual(yield* store.get(context.runId), before)
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  )
})
