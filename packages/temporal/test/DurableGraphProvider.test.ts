/** Durable runs behind the port of graphs, with Temporal, the journals and the records in memory. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { layerMemory as storeMemory, RunStore } from "@cogni/sandbox-core/RunStore"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { GrantStore, layerMemory as grantsMemory } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { type GrantInput } from "@cogni/sandbox-graph-provider/grants/GrantDraft"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import type { GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { Deferred, Effect, Exit, Fiber, Layer, Ref, Scope, Stream } from "effect"
import * as DurableGraphProvider from "../src/DurableGraphProvider.ts"
import { defaults, type DurableOutcome, type DurableRun } from "../src/DurableRun.ts"
import { DurableRuns } from "../src/DurableRuns.ts"
import * as RunEnd from "../src/internal/RunEnd.ts"
import { TemporalFailed } from "../src/TemporalServer.ts"

const runId = RunId.make("run-durable-graph")

const grantInput: GrantInput = {
  userId: "ana",
  billingAccountId: "acme",
  scopes: ["graph:execute:*"],
  allowSandbox: true,
  expiresAt: null
}

const outcome = (over: Partial<DurableOutcome> = {}): DurableOutcome => ({
  runId,
  status: "succeeded",
  attempts: [
    {
      runId,
      attempt: 0,
      host: "host-1",
      status: "succeeded",
      spend: { calls: 1, isFinal: true },
      lastEventId: 3,
      branch: "agent/lima"
    }
  ],
  ...over
})

const failed = (reason: TemporalFailed["reason"]) =>
  new TemporalFailed({ reason, detail: "Temporal is away", remedy: "Start it" })

/** A queue in memory: the test decides how a run ends. */
const world = (options: DurableGraphProvider.DurableGraphOptions = {}) =>
  Effect.gen(function* () {
    const submitted = yield* Ref.make<ReadonlyArray<DurableRun>>([])
    const cancelled = yield* Ref.make<ReadonlyArray<string>>([])
    const fault = yield* Ref.make<TemporalFailed | undefined>(undefined)
    const answer = yield* Ref.make<Effect.Effect<void>>(Effect.void)
    const end = yield* Deferred.make<DurableOutcome>()
    const faulty = Effect.flatMap(Ref.get(fault), (error) =>
      error === undefined ? Effect.void : Effect.fail(error)
    )
    const runs = DurableRuns.of({
      submit: (run) =>
        Effect.flatten(Ref.get(answer)).pipe(
          Effect.andThen(faulty),
          Effect.andThen(Ref.update(submitted, (all) => [...all, run]))
        ),
      wait: () => Effect.andThen(faulty, Deferred.await(end)),
      cancel: (id) =>
        Effect.andThen(
          Ref.update(cancelled, (all) => [...all, id]),
          Effect.asVoid(
            Deferred.succeed(end, outcome({ status: "stopped", reason: "Cancelled", message: "cancelled" }))
          )
        ),
      hasWorkers: Effect.succeed(true),
      find: () => Effect.succeed(undefined),
      underWay: () => Effect.succeed([])
    })
    const context = yield* Layer.build(
      AggregatingGraphExecutor.layer([DurableGraphProvider.DurableGraphProvider]).pipe(
        Layer.provideMerge(DurableGraphProvider.layer(options)),
        Layer.provide(Layer.succeed(DurableRuns, runs)),
        Layer.provide(GraphObserver.layerNone),
        Layer.provideMerge(Layer.mergeAll(grantsMemory, storeMemory, RunJournal.layerMemory))
      )
    )
    return yield* Effect.gen(function* () {
      const provider = yield* DurableGraphProvider.DurableGraphProvider
      const executor = yield* AggregatingGraphExecutor.GraphExecutor
      const store = yield* RunStore
      const journal = yield* RunJournal.RunJournal
      const grants = yield* GrantStore
      const { grant: issued } = yield* Effect.orDie(grants.issue(grantInput))
      const request: GraphRunRequest = {
        graphId: GraphId.make("sandbox:agent"),
        messages: [{ role: "user", content: "Where is Lima?" }],
        model: "gpt",
        caller: { billingAccountId: "acme", virtualKeyId: issued.id, requestId: "req-1", traceId: "trace-1" }
      }
      const its: RunContext = { runId, attempt: 0, ingressRequestId: "req-1", grantId: issued.id }
      const write = (...events: ReadonlyArray<RunJournal.JournalEvent>) =>
        Effect.forEach(events, (event) => journal.write(runId, event), { discard: true })
      /** Writes the first record of a run, as its host does. */
      const begin = (id: RunId = runId, billingAccountId = "acme") =>
        Effect.gen(function* () {
          const llm = { model: "gpt", identity: { billingAccountId, attempt: 0 } }
          const spec = yield* SpecDecoder.decode({ image: "agent", argv: ["true"], llm })
          return { ...(yield* store.open(id, spec)), spec }
        }).pipe(Effect.scoped, Effect.orDie)
      /** The same, once the run was submitted. */
      const begun = Effect.andThen(
        Effect.repeat(Ref.get(submitted), { until: (all) => all.length === 1 }),
        begin()
      )
      /** Writes the record of a run that has ended with an answer. */
      const recorded = Effect.fnUntraced(function* ({ owner, save, spec }: Effect.Success<typeof begun>) {
        yield* save({
          runId,
          spec,
          owner,
          startedAt: "2026-01-01T00:00:00.000Z",
          outcome: { status: "closed" },
          timings: [],
          llm: {
            proxy: "gateway",
            upstream: "http://127.0.0.1:4000",
            calls: [],
            callsTotal: 0,
            unreadableRows: 0,
            injectedHeaders: [],
            usage: {
              calls: 1,
              inputTokens: 9,
              outputTokens: 4,
              cacheReadTokens: 0,
              cacheWriteTokens: 0,
              callsWithoutUsage: 0,
              callsWithoutCost: 0
            }
          }
        })
        yield* store.annotate(runId, { answer: "In Peru.\n\nBranch: agent/lima" })
      }, Effect.orDie)
      const others = { answer, begin, begun, grants, write, end, submitted, cancelled, fault, recorded }
      return { provider, executor, store, journal, request, context: its, ...others }
    }).pipe(Effect.provideContext(context))
  })

const started: RunJournal.JournalEvent = { type: "run.started" }
const ended: RunJournal.JournalEvent = { type: "run.ended", status: "exited", exitCode: 0 }

describe("DurableGraphProvider", () => {
  it.live("submits a run, and streams its events and its answer like any other run", () =>
    Effect.gen(function* () {
      const { begun, context, end, executor, recorded, request, submitted, write } = yield* world({
        wallSecondsMax: 60
      })
      yield* executor.check(request, context)
      const run = yield* executor.run(request, context)
      const reading = yield* Effect.forkChild(Stream.runCollect(run.events))
      const opened = yield* begun
      yield* write(started, { type: "phase.ended", phase: "boot", durationMs: 1 } as never)
      yield* write({ type: "message.written", text: "In " }, { type: "message.written", text: "Peru." })
      yield* write({ type: "tool.started", toolCallId: "t1", tool: "Bash", arguments: '{"command":"ls"}' })
      yield* write({ type: "tool.ended", toolCallId: "t1", isError: true, result: "no" }, ended)
      yield* recorded(opened)
      yield* Deferred.succeed(end, outcome())
      const events = [...(yield* Fiber.join(reading))]
      assert.deepStrictEqual(
        events.map(({ type }) => type),
        [
          "status",
          "text_delta",
          "text_delta",
          "tool_call_start",
          "tool_call_result",
          "text_delta",
          "assistant_final",
          "usage_report",
          "done"
        ]
      )
      assert.deepInclude(events[3], { toolName: "Bash", args: { command: "ls" } })
      assert.deepInclude(events[4], { result: "no", isError: true })
      assert.deepInclude(events[5], { delta: "\n\nBranch: agent/lima" })
      const final = yield* run.final
      assert.deepInclude(final, {
        ok: true,
        runId,
        requestId: "req-1",
        branch: "agent/lima",
        finishReason: "stop"
      })
      assert.strictEqual(final.content, "In Peru.\n\nBranch: agent/lima")
      assert.deepStrictEqual(final.usage, { promptTokens: 9, completionTokens: 4 })
      const [one] = yield* Ref.get(submitted)
      assert.deepInclude(one, { ...defaults, runId, grantId: context.grantId, wallSecondsMax: 60 })
      assert.notProperty(one?.request, "caller")
    }).pipe(Effect.scoped)
  )

  it.live("leaves the model to the host if the request does, also with a grant that lists models", () =>
    Effect.gen(function* () {
      const { context, end, executor, grants, request, submitted } = yield* world()
      const { grant } = yield* grants.issue({ ...grantInput, permissions: { models: ["gpt-*"] } })
      const open = { ...request, model: DurableGraphProvider.hostModel }
      yield* Deferred.succeed(end, outcome())
      const run = yield* executor.run(open, { ...context, grantId: grant.id })
      yield* run.final
      const [one] = yield* Ref.get(submitted)
      assert.notProperty(one?.request, "model")
    }).pipe(Effect.scoped)
  )

  it.live("ends the run on its host when it is cancelled, and when its scope closes", () =>
    Effect.gen(function* () {
      for (const how of ["cancel", "close"] as const) {
        const { cancelled, context, executor, request, submitted } = yield* world()
        const scope = yield* Scope.make()
        const run = yield* Scope.provide(executor.run(request, context), scope)
        const reading = yield* Effect.forkChild(Stream.runCollect(run.events))
        yield* Effect.repeat(Ref.get(submitted), { until: (all) => all.length === 1 })
        yield* how === "cancel" ? run.cancel : Scope.close(scope, Exit.void)
        const final = yield* run.final
        assert.deepInclude(final, { ok: false, error: "aborted" })
        assert.deepStrictEqual(yield* Ref.get(cancelled), [runId])
        assert.strictEqual([...(yield* Fiber.join(reading))].at(-1)?.type, "done")
      }
    }).pipe(Effect.scoped)
  )

  it.live("ends only a run that it has created, if its scope closes while Temporal is asked", () =>
    Effect.gen(function* () {
      for (const reason of ["RunIdInUse", undefined] as const) {
        const { answer, cancelled, context, fault, provider, request } = yield* world()
        const asked = yield* Deferred.make<void>()
        const told = yield* Deferred.make<void>()
        yield* Ref.set(answer, Effect.andThen(Deferred.succeed(asked, undefined), Deferred.await(told)))
        if (reason !== undefined) yield* Ref.set(fault, failed(reason))
        const scope = yield* Scope.make()
        const run = yield* Scope.provide(provider.run(request, context), scope)
        yield* Deferred.await(asked)
        const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
        // The closing reaches the submission before its answer does.
        yield* Effect.repeat(Effect.yieldNow, { times: 20 })
        yield* Deferred.succeed(told, undefined)
        yield* Fiber.join(closing)
        assert.deepStrictEqual(yield* Ref.get(cancelled), reason === undefined ? [runId] : [])
        assert.deepInclude(yield* run.final, { ok: false, error: "aborted" })
      }
    }).pipe(Effect.scoped)
  )

  it.live("starts nothing without a grant that allows the run", () =>
    Effect.gen(function* () {
      const { context, grants, provider, request, submitted } = yield* world()
      const reasonFor = (its: Partial<RunContext>, asked: Partial<GraphRunRequest> = {}) =>
        Effect.map(
          Effect.flip(provider.check({ ...request, ...asked }, { ...context, ...its })),
          ({ reason }) => reason
        )
      const closed = yield* Effect.orDie(grants.issue({ ...grantInput, allowSandbox: false }))
      const other = yield* Effect.orDie(grants.issue({ ...grantInput, billingAccountId: "other" }))
      const revoked = yield* Effect.orDie(grants.issue(grantInput))
      yield* Effect.orDie(grants.revoke(revoked.grant.id))
      assert.strictEqual(yield* reasonFor({ grantId: "grant-none" }), "GrantNotFound")
      assert.strictEqual(yield* reasonFor({ grantId: closed.grant.id }), "SandboxNotAllowed")
      assert.strictEqual(yield* reasonFor({ grantId: other.grant.id }), "GrantAccountMismatch")
      assert.strictEqual(yield* reasonFor({ grantId: revoked.grant.id }), "GrantRevoked")
      assert.strictEqual(yield* reasonFor({}, { packages: ["npm:left-pad" as never] }), "PackageNotGranted")
      assert.strictEqual(
        yield* reasonFor({ runId: RunId.make("r".repeat(45)) }),
        "InvalidRequest",
        "an attempt of it would have no ID"
      )
      const run = yield* provider.run(request, { ...context, grantId: revoked.grant.id })
      assert.deepInclude(yield* run.final, { ok: false, error: "authz_denied", reason: "GrantRevoked" })
      assert.deepStrictEqual(yield* Ref.get(submitted), [])
    }).pipe(Effect.scoped)
  )

  it.live("reports a Temporal that does not answer, and a run ID that was used", () =>
    Effect.gen(function* () {
      for (const [reason, expected, says] of [
        ["Unreachable", "TemporalUnreachable", "Try again"],
        ["RunIdInUse", "RunIdInUse", "leave it out"],
        ["SearchAttributesMissing", "SearchAttributesMissing", "The operator"]
      ] as const) {
        const { context, executor, fault, request } = yield* world()
        yield* Ref.set(fault, failed(reason))
        const run = yield* executor.run(request, context)
        const final = yield* run.final
        assert.strictEqual(final.reason, expected)
        // The caller is not the operator of Temporal.
        assert.notInclude(final.message, "Temporal is away")
        assert.include(final.message, says)
      }
    }).pipe(Effect.scoped)
  )

  it.live("follows the next attempt of a lost one", () =>
    Effect.gen(function* () {
      const { begin, begun, context, end, journal, provider, request, write } = yield* world({
        attemptsMax: 2
      })
      const run = yield* provider.run(request, context)
      const reading = yield* Effect.forkChild(Stream.runCollect(run.events))
      yield* begun
      yield* write(started, { type: "message.written", text: "lost" })
      const next = RunId.make(`${runId}-a1`)
      yield* begin(next)
      yield* journal.write(next, started)
      yield* journal.write(next, { type: "message.written", text: "Lima" })
      yield* journal.write(next, ended)
      yield* Deferred.succeed(end, outcome({ attempts: [] }))
      const events = [...(yield* Fiber.join(reading))]
      assert.deepStrictEqual(
        events.flatMap((event) =>
          event.type === "text_delta" ? [event.delta] : event.type === "status" ? [event.label] : []
        ),
        ["lost", "2", "Lima"]
      )
      assert.strictEqual((yield* run.final).content, "Lima")
    }).pipe(Effect.scoped)
  )

  it.live("shows nothing of a run of another account that has the ID of an attempt", () =>
    Effect.gen(function* () {
      for (const foreign of [runId, RunId.make(`${runId}-a1`)]) {
        const { begin, begun, context, end, journal, provider, request, submitted } = yield* world({
          attemptsMax: 2
        })
        const attempt = { ...outcome().attempts[0]!, runId: foreign }
        yield* journal.write(foreign, started)
        yield* journal.write(foreign, { type: "message.written", text: "SECRET" })
        if (foreign !== runId) yield* begin(foreign, "other")
        const run = yield* provider.run(request, context)
        const reading = yield* Effect.forkChild(Stream.runCollect(run.events))
        if (foreign !== runId) yield* begun
        else {
          // It starts on a host after it was submitted here.
          yield* Effect.repeat(Ref.get(submitted), { until: (all) => all.length === 1 })
          yield* begin(foreign, "other")
        }
        yield* Deferred.succeed(end, outcome({ attempts: [attempt] }))
        const events = [...(yield* Fiber.join(reading))]
        assert.notInclude(JSON.stringify(events), "SECRET")
        assert.notInclude(JSON.stringify(yield* run.final), "SECRET")
      }
    }).pipe(Effect.scoped)
  )

  it.live("refuses the ID of a run that Temporal does not know, but the records do", () =>
    Effect.gen(function* () {
      const { begin, context, provider, request, submitted } = yield* world()
      yield* begin(runId, "other")
      const refused = yield* Effect.flip(provider.check(request, context))
      assert.deepInclude(refused, { error: "aborted", reason: "RunIdInUse" })
      assert.strictEqual((yield* (yield* provider.run(request, context)).final).reason, "RunIdInUse")
      assert.deepStrictEqual(yield* Ref.get(submitted), [])
    }).pipe(Effect.scoped)
  )
})

describe("the end of a durable run", () => {
  it("has the code of its outcome", () => {
    const request = { graphId: "sandbox:agent", caller: { billingAccountId: "a", requestId: "r" } } as never
    const errorOf = (over: Partial<DurableOutcome>) =>
      RunEnd.make(request, { runId } as never, {
        outcome: outcome({ attempts: [], ...over }),
        records: [],
        text: ""
      }).final.error
    assert.isUndefined(errorOf({}))
    assert.strictEqual(errorOf({ status: "refused", reason: "NoRoom" }), "rate_limit")
    assert.strictEqual(errorOf({ status: "refused", reason: "ModelNotGranted" }), "policy_denied")
    assert.strictEqual(errorOf({ status: "stopped", reason: "WallClockExceeded" }), "timeout")
    assert.strictEqual(errorOf({ status: "stopped", reason: "Cancelled" }), "aborted")
    assert.strictEqual(errorOf({ status: "lost", reason: "HostLost" }), "internal")
  })
})
