/** Admission of a run: the order and time of its checks, and the codes of its refusals. */
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/grants/GrantError"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import type * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { AccountBusy, InsufficientCredits, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { context, envelope, grantOf, refusal, request, run, told, world } from "./GraphWorld.ts"

const answering = { program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) } satisfies Parameters<
  typeof world
>[0]

const withGrants = (find: GrantStore["Service"]["find"]) =>
  SandboxGraphProvider.layer({ enabled: true, models: ["gpt"] }).pipe(
    Layer.provide([AgentRegistry.layer([minimal]), Layer.mock(GrantStore, { find }), Repositories.layerNoop]),
    Layer.provide(GraphObserver.layerNone),
    Layer.provideMerge(SandboxRunner.layerMemory(answering))
  )

/** Accounts that fail with these reasons when they are checked, and when a run is admitted. */
const admitting = (
  checked: LlmProxy.LlmProxyError | undefined,
  admitted: LlmProxy.LlmProxyError | undefined
): LlmProxy.LlmAdmissions => ({
  check: () => (checked === undefined ? Effect.void : Effect.fail(checked)),
  admit: () => (admitted === undefined ? Effect.void : Effect.fail(admitted))
})

const account = { billingAccountId: "acct", detail: "it is empty", remedy: "Pay" }

/** A relay that accepts every repository. */
const anyRepository = Layer.succeed(
  Repositories.Repositories,
  Repositories.Repositories.of({ check: () => Effect.void, inClone: () => () => Effect.die("it was cloned") })
)

describe("Admission", () => {
  it.effect("does not reveal to a caller without a grant which agents exist", () =>
    Effect.gen(function* () {
      const nobody = yield* refusal(request({ graphId: "sandbox:nobody" }))
      assert.deepStrictEqual([nobody.error, nobody.reason], ["authz_denied", "GrantNotFound"])
    }).pipe(Effect.provide(world({ ...answering, grants: [] })))
  )

  it.effect("rejects a repository for an agent that calls no tools", () =>
    Effect.gen(function* () {
      const repository = { url: "https://example.org/x/y" }
      const refused = yield* refusal(request({ repository }))
      assert.deepStrictEqual([refused.error, refused.reason], ["invalid_request", "CapabilityMissing"])
      const provider = yield* SandboxGraphProvider.SandboxGraphProvider
      yield* provider.check(request({ graphId: "sandbox:worker", repository }), context)
    }).pipe(Effect.provide(world({ ...answering, repositories: anyRepository })))
  )

  it.effect("refuses a tool that the proxy does not have in check, and before a sandbox is made", () =>
    Effect.gen(function* () {
      const asked = request({ toolIds: ["core__no_such_tool"] })
      const refused = yield* refusal(asked)
      assert.deepStrictEqual([refused.error, refused.reason], ["invalid_request", "InvalidSpec"])
      assert.strictEqual(
        refused.message,
        "tools: the proxy has no core__no_such_tool (it has no tool at all)"
      )
      const { events, final } = yield* told(asked)
      assert.containSubset(final, { ok: false, error: "invalid_request", reason: "InvalidSpec" })
      assert.containSubset(events[0], { type: "usage_report", fact: { inputTokens: 0 } })
      assert.deepStrictEqual(yield* (yield* RunStore).list, [])
    }).pipe(Effect.provide(world({ program: () => Effect.die("a sandbox was made") })))
  )

  it.effect("refuses a run that starts after its grant has expired", () =>
    Effect.gen(function* () {
      const { final: before } = yield* told(request())
      assert.isTrue(before.ok)
      yield* TestClock.adjust("1 hour")
      const { final: after } = yield* told(request())
      assert.containSubset(after, { ok: false, error: "authz_denied", reason: "GrantExpired" })
    }).pipe(Effect.provide(world({ ...answering, grants: [grantOf({ expiresAt: new Date(3_600_000) })] })))
  )

  it.effect("refuses a run whose grant was revoked between check and start", () => {
    const grants = [grantOf(), grantOf({ revokedAt: new Date(0) })]
    return Effect.gen(function* () {
      const provider = yield* SandboxGraphProvider.SandboxGraphProvider
      yield* provider.check(request(), context)
      const { final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "authz_denied", reason: "GrantRevoked" })
    }).pipe(Effect.provide(withGrants(() => Effect.sync(() => grants.shift()))))
  })

  it.effect.each<[string, LlmProxy.LlmProxyError, object]>([
    [
      "cannot pay",
      new InsufficientCredits({ ...account, retrySeconds: 60 }),
      { error: "insufficient_credits", reason: "InsufficientCredits", retrySeconds: 60 }
    ],
    ["has too many runs", new AccountBusy(account), { error: "rate_limit", reason: "AccountBusy" }],
    [
      "cannot be asked about",
      new StoreUnavailable({ detail: "is gone", remedy: "Start it" }),
      { error: "internal", reason: "StoreUnavailable" }
    ]
  ])("refuses a run whose account %s, in check and before a sandbox is made", ([, reason, expected]) =>
    Effect.gen(function* () {
      assert.containSubset(yield* refusal(request()), expected)
      const { final } = yield* told(request())
      const { error, reason: tag } = expected as { readonly error: string; readonly reason: string }
      assert.containSubset(final, { ok: false, error, reason: tag })
    }).pipe(
      Effect.provide(
        world({ program: () => Effect.die("a sandbox was made"), admissions: admitting(reason, reason) })
      )
    )
  )

  it.effect("gives the same code to a run whose account was emptied between check and start", () => {
    const reason = new InsufficientCredits(account)
    return Effect.gen(function* () {
      const provider = yield* SandboxGraphProvider.SandboxGraphProvider
      yield* provider.check(request(), context)
      const { events, final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "insufficient_credits", reason: "InsufficientCredits" })
      assert.containSubset(events.at(-2), { type: "error", error: "insufficient_credits" })
      assert.containSubset(events[0], { type: "usage_report", fact: { inputTokens: 0, outputTokens: 0 } })
    }).pipe(
      Effect.provide(
        world({
          program: () => Effect.die("a sandbox was made"),
          admissions: admitting(undefined, reason)
        })
      )
    )
  })

  it.effect("reports an unreachable grant store as internal, not as a fault of the caller", () =>
    Effect.gen(function* () {
      const refused = yield* refusal(request())
      assert.deepStrictEqual([refused.error, refused.reason], ["internal", "GrantStoreUnavailable"])
    }).pipe(
      Effect.provide(
        withGrants(() => Effect.fail(new GrantStoreUnavailable({ detail: "is gone", remedy: "Look" })))
      )
    )
  )

  it.effect.each<[string, ReturnType<typeof request>, string]>([
    ["a model", request({ model: "o1-pro" }), "ModelNotGranted"],
    ["a tool", request({ toolIds: ["core__metrics_query"] }), "ToolNotGranted"],
    [
      "a repository",
      request({ graphId: "sandbox:worker", repository: { url: "https://github.com/acme/app" } }),
      "RepositoryNotGranted"
    ]
  ])(
    "refuses %s beyond the grant as authz_denied, before an agent or a relay is asked",
    ([, asked, reason]) =>
      Effect.gen(function* () {
        const refused = yield* refusal(asked)
        assert.deepStrictEqual([refused.error, refused.reason], ["authz_denied", reason])
        const { final } = yield* told(asked)
        assert.containSubset(final, { ok: false, error: "authz_denied", reason })
      }).pipe(
        Effect.provide(
          world({
            program: () => Effect.die("a sandbox was made"),
            grants: [grantOf({ permissions: {} })],
            repositories: Layer.succeed(
              Repositories.Repositories,
              Repositories.Repositories.of({
                check: () => Effect.die("the relay was asked"),
                // Even the call that prepares a clone would be too early.
                inClone: () => {
                  throw new Error("the relay was asked for a clone")
                }
              })
            )
          })
        )
      )
  )

  it.effect("limits a run to the budget of its grant, whatever the request asks for", () =>
    Effect.gen(function* () {
      yield* told(request({ budget: { callsMax: 1000, onExhausted: "refuse" } }))
      yield* told(request(), { ...context, runId: RunId.make("run-000000000002") })
      const budget = { callsMax: 3, outputTokensMax: 100, onExhausted: "refuse" } as const
      const records = yield* (yield* RunStore).list
      assert.deepStrictEqual(
        records.map(({ spec }) => spec.llm?.budget),
        [budget, budget]
      )
    }).pipe(
      Effect.provide(
        world({
          ...answering,
          grants: [
            grantOf({
              permissions: { budget: { callsMax: 3, outputTokensMax: 100, onExhausted: "refuse" } }
            })
          ]
        })
      )
    )
  )

  it.effect("refuses one run more than a grant may have at one time, until one has ended", () =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const done = yield* Deferred.make<void>()
      const one = grantOf({ id: "grant-one-at-a-time", permissions: { concurrentRunsMax: 1 } })
      const as = (runId: string) => ({ ...context, grantId: one.id, runId: RunId.make(runId) })
      const program: typeof answering.program = (io) =>
        Deferred.succeed(started, undefined).pipe(
          Effect.andThen(Deferred.await(done)),
          Effect.andThen(answering.program(io))
        )
      yield* Effect.gen(function* () {
        const { check } = yield* SandboxGraphProvider.SandboxGraphProvider
        const first = yield* run(request(), as("run-000000000001"))
        yield* Deferred.await(started)
        const refused = yield* Effect.flip(check(request(), as("run-000000000002")))
        assert.containSubset(refused, { error: "rate_limit", reason: "GrantRunsExhausted", retrySeconds: 5 })
        const { final } = yield* told(request(), as("run-000000000002"))
        assert.containSubset(final, { ok: false, error: "rate_limit", reason: "GrantRunsExhausted" })
        yield* Deferred.succeed(done, undefined)
        yield* first.final
        assert.isTrue((yield* told(request(), as("run-000000000003"))).final.ok)
      }).pipe(Effect.scoped, Effect.provide(world({ program, grants: [one] })))
    })
  )

  it.effect("cancels a run while its grant is looked up", () =>
    Effect.gen(function* () {
      const live = yield* run(request())
      yield* live.cancel
      const waiting = yield* Effect.forkChild(live.final)
      yield* TestClock.adjust("10 minutes")
      assert.isDefined(waiting.pollUnsafe())
    }).pipe(Effect.scoped, Effect.provide(withGrants(() => Effect.never)))
  )

  it.effect("rejects a request without messages, also from an untyped caller", () =>
    Effect.gen(function* () {
      const none = Object.assign(request(), { messages: [] })
      const { final } = yield* told(none as unknown as ReturnType<typeof request>)
      assert.containSubset(final, { ok: false, error: "invalid_request" })
    }).pipe(Effect.provide(world(answering)))
  )
})
