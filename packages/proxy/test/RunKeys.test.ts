/** A key for each run, in a gateway with a scripted upstream and keys in memory that fail in every way. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Latch, Layer, Logger, Redacted, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import * as UpstreamKeys from "../src/internal/gateway/UpstreamKeys.ts"
import * as RunKeyAlias from "../src/internal/keys/RunKeyAlias.ts"
import * as RunKeyLease from "../src/internal/keys/RunKeyLease.ts"
import * as RunKeyTerms from "../src/internal/keys/RunKeyTerms.ts"
import { profiles } from "../src/UpstreamProfile.ts"
import * as RunKeys from "../src/RunKeys.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"
import * as Gateway from "./GatewaySocket.ts"
import * as HeldUpstream from "./HeldUpstream.ts"
import * as RunKeysContract from "./RunKeysContract.ts"

let memory: Effect.Success<ReturnType<typeof RunKeys.makeMemory>> | undefined

RunKeysContract.suite(
  "memory",
  Layer.effect(
    RunKeys.RunKeys,
    Effect.tap(RunKeys.makeMemory(), (made) =>
      Effect.sync(() => {
        memory = made
      })
    )
  ),
  {
    existing: (runId) =>
      Effect.map(memory!.existing, (all) =>
        [...all.keys()].filter((alias) => RunKeyAlias.runOf("memory", alias) === runId)
      )
  }
)

const refused = (operation: RunKeys.RunKeyFailed["operation"], isRetryable = false, isUncertain = false) =>
  new RunKeys.RunKeyFailed({
    operation,
    detail: "LiteLLM answered 401",
    remedy: "Use LiteLLM's master key",
    isRetryable,
    isUncertain
  })

const gatewayWith = Effect.fnUntraced(function* (
  options: RunKeys.MemoryRunKeysOptions = {},
  fallback?: "none" | "masterKey"
) {
  const keys = yield* RunKeys.makeMemory(options)
  const upstream = yield* ScriptedModelApi.acquire({
    raw: true,
    script: ScriptedModelApi.steps([{ _tag: "Answer" }])
  })
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const proxy = yield* GatewayLlmProxy.make({
    url: upstream.url,
    key: Redacted.make(Gateway.key),
    runKeys: { keys, fallback },
    shardsMax: 1
  }).pipe(Effect.provide([MemoryContainerRuntime.layer(), UsageObserver.layerNone]), Scope.provide(scope))
  return { keys, proxy, upstream, close: Scope.close(scope, Exit.void) }
})

const authorizations = (upstream: ScriptedModelApi.ScriptedModelApi) =>
  Effect.map(upstream.received, (received) =>
    received.map(({ headers }) => headers.find(([name]) => name === "authorization")?.[1])
  )

const entriesOf = (audit: string) =>
  audit
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>)

describe("a gateway with a key for each run", () => {
  it.live("sends each run's calls with the key of that run, records its hash, and deletes it", () =>
    Effect.gen(function* () {
      const { close, keys, proxy, upstream } = yield* gatewayWith()
      for (let run = 0; run < 2; run++) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const opened = yield* Gateway.openRun(proxy)
            const [{ runKey, terms } = assert.fail("no key")] = [...(yield* keys.existing).values()]
            assert.strictEqual(terms.runId, opened.runId)
            for (let call = 0; call < 2; call++) {
              const answer = yield* opened.send(Gateway.http(Gateway.chat()))
              assert.strictEqual(answer.status, 200, answer.text)
            }
            const sent = (yield* authorizations(upstream)).slice(-2)
            assert.deepStrictEqual(sent, Array(2).fill(`Bearer ${Redacted.value(runKey.key)}`))
            yield* opened.endpoint.finish
            const audit = yield* opened.audit
            const keyed = entriesOf(audit).find(({ type }) => type === "run.keyed")
            assert.strictEqual(keyed?.["keyHash"], runKey.hash)
            assert.strictEqual(keyed?.["credential"], "run")
            assert.notInclude(audit, Redacted.value(runKey.key))
          })
        )
      }
      yield* close
      assert.strictEqual((yield* keys.existing).size, 0)
      assert.strictEqual((yield* keys.created).length, 2)
      assert.notInclude((yield* authorizations(upstream)).join(" "), Gateway.key)
    })
  )

  it.live("deletes the key of a run after the answers that are read at its end", () =>
    Effect.gen(function* () {
      const deleted: Array<string> = []
      let audit: Effect.Effect<string> = Effect.succeed("")
      const keys = yield* RunKeys.makeMemory({
        fault: (operation) =>
          operation === "delete" ? Effect.map(audit, (text) => void deleted.push(text)) : Effect.void
      })
      const scope = yield* Scope.make()
      const gateway = yield* HeldUpstream.make({ runKeys: { keys }, endDrainSecondsMax: 0.2 }).pipe(
        Scope.provide(scope)
      )
      audit = gateway.audit
      yield* gateway.abandoned(Gateway.http(Gateway.chat()))
      yield* Scope.close(scope, Exit.void)
      assert.lengthOf(deleted, 1)
      assert.include(deleted[0], `"call.ended"`)
      assert.include(deleted[0], `"run.closed"`)
    })
  )

  it.live("refuses a run without a key, with what to do, and sends nothing", () =>
    Effect.gen(function* () {
      const { keys, proxy, upstream } = yield* gatewayWith({
        fault: (operation) => (operation === "create" ? Effect.fail(refused(operation)) : Effect.void)
      })
      const error = yield* Effect.flip(Gateway.openRun(proxy))
      assert.strictEqual(error._tag, "Misconfigured")
      assert.include(error.message, "LiteLLM answered 401")
      assert.include(error.message, "Use LiteLLM's master key")
      assert.deepStrictEqual(yield* upstream.received, [])
      assert.strictEqual((yield* keys.existing).size, 0)
    })
  )

  it.live("uses the gateway's key if the configuration allows it, and records that", () =>
    Effect.gen(function* () {
      const { proxy, upstream } = yield* gatewayWith(
        { fault: (operation) => (operation === "create" ? Effect.fail(refused(operation)) : Effect.void) },
        "masterKey"
      )
      const opened = yield* Gateway.openRun(proxy)
      assert.strictEqual((yield* opened.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.deepStrictEqual(yield* authorizations(upstream), [`Bearer ${Gateway.key}`])
      yield* opened.endpoint.finish
      const keyed = entriesOf(yield* opened.audit).find(({ type }) => type === "run.keyed")
      assert.strictEqual(keyed?.["credential"], "shared")
    })
  )

  it.live("is refused for an upstream that issues no keys", () =>
    Effect.gen(function* () {
      const keys = yield* RunKeys.makeMemory()
      const error = yield* Effect.flip(
        GatewayLlmProxy.make({
          url: "http://127.0.0.1:1",
          key: Redacted.make("k"),
          profile: "openai",
          runKeys: { keys }
        }).pipe(Effect.provide([MemoryContainerRuntime.layer(), UsageObserver.layerNone]))
      )
      assert.include(error.message, "only LiteLLM issues keys")
    })
  )
})

describe("the key of a run in its thread", () => {
  const asking = Effect.fnUntraced(function* (freshMillis: number) {
    const asked: Array<UpstreamKeys.KeyAsk> = []
    const keys = UpstreamKeys.make("fixed", undefined)
    const current = keys.current((ask) =>
      Effect.sync(() => ({ _tag: "Key", key: "k", version: asked.push(ask), freshMillis }))
    )
    yield* current
    keys.refused(1)
    yield* current
    return { asked, renews: keys.renews() }
  })

  it.effect("is asked for again if it is the gateway's own and was refused, because it may be rotated", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asking(60_000), {
        asked: [
          { type: "key", refused: undefined },
          { type: "key", refused: 1 }
        ],
        renews: true
      })
    })
  )

  it.effect("is asked for once if it is the run's, which never changes", () =>
    Effect.gen(function* () {
      const { asked, renews } = yield* asking(Number.POSITIVE_INFINITY)
      assert.strictEqual(asked.length, 1)
      assert.isFalse(renews)
    })
  )
})

describe("the lease of a key", () => {
  const quiet = Logger.layer([])
  const run = Effect.map(RunId.generate, (runId) => RunKeysContract.termsOf(runId))

  it.effect("deletes exactly one key for each run, however the run ends", () =>
    Effect.gen(function* () {
      const gate = yield* Latch.make(true)
      const keys = yield* RunKeys.makeMemory({ fault: () => gate.await })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const leases = yield* RunKeyLease.make(keys)
          const ends = ["success", "failure", "defect", "interrupted early", "interrupted"] as const
          for (const end of ends) {
            if (end === "interrupted early") yield* gate.close
            const fiber = yield* Effect.scoped(
              Effect.gen(function* () {
                const { key } = yield* leases.open(yield* run)
                if (end !== "interrupted early") yield* key
                if (end === "failure") return yield* Effect.fail("failed")
                if (end === "defect") return yield* Effect.die("defect")
                if (end !== "success") return yield* Effect.never
              })
            ).pipe(Effect.forkChild({ startImmediately: true }))
            if (end.startsWith("interrupted")) yield* Fiber.interrupt(fiber)
            else yield* Fiber.await(fiber)
            yield* gate.open
          }
        })
      )
      assert.strictEqual((yield* keys.existing).size, 0)
      assert.strictEqual((yield* keys.created).length, 5)
    })
  )

  /** Leases whose keys cannot be deleted as long as `isGone` says so. */
  const failing = Effect.fnUntraced(function* () {
    const state = { isGone: true, tries: 0 }
    const keys = yield* RunKeys.makeMemory({
      fault: (operation) =>
        Effect.suspend(() => {
          if (operation !== "delete") return Effect.void
          state.tries += 1
          return state.isGone ? Effect.fail(refused("delete", true)) : Effect.void
        })
    })
    const leases = yield* RunKeyLease.make(keys)
    yield* Effect.scoped(Effect.flatMap(Effect.flatMap(run, leases.open), ({ key }) => key))
    yield* TestClock.adjust("30 seconds")
    return { keys, leases, state }
  })

  it.effect("counts a key that cannot be deleted, after it has tried three times", () =>
    Effect.gen(function* () {
      const { leases, state } = yield* failing()
      assert.strictEqual(state.tries, 3)
      assert.strictEqual(leases.leftTotal(), 1)
    }).pipe(Effect.provide(quiet))
  )

  it.effect("deletes such a key once the upstream is back, and tries no more", () =>
    Effect.gen(function* () {
      const { keys, leases, state } = yield* failing()
      yield* TestClock.adjust("5 minutes")
      assert.strictEqual(state.tries, 8)
      state.isGone = false
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* keys.existing).size, 0)
      assert.strictEqual(leases.leftTotal(), 0)
      yield* TestClock.adjust("5 minutes")
      assert.strictEqual(state.tries, 9)
    }).pipe(Effect.provide(quiet))
  )

  it.effect("deletes such a key when the gateway closes", () =>
    Effect.gen(function* () {
      const { keys, state } = yield* Effect.scoped(
        Effect.tap(failing(), ({ state }) => Effect.sync(() => (state.isGone = false)))
      )
      assert.strictEqual(state.tries, 4)
      assert.strictEqual((yield* keys.existing).size, 0)
    }).pipe(Effect.provide(quiet))
  )

  for (const [when, isClosed] of [
    ["one or two minutes later", false],
    ["when the gateway closes", true]
  ] as const)
    it.effect(`deletes a key that was created after its deletion: ${when}`, () =>
      Effect.gen(function* () {
        let hasAnswer = false
        const keys = yield* RunKeys.makeMemory({
          fault: (operation) => (operation === "create" && !hasAnswer ? Effect.never : Effect.void)
        })
        const terms = yield* run
        const scope = yield* Scope.make()
        const leases = yield* Scope.provide(RunKeyLease.make(keys), scope)
        // The creation fails just before the keys that are left are tried again.
        yield* TestClock.adjust(`${59 - RunKeyLease.createSecondsMax} seconds`)
        const fiber = yield* Effect.scoped(
          Effect.flatMap(leases.open(terms), ({ alias, key }) => Effect.mapError(key, () => alias))
        ).pipe(Effect.flip, Effect.forkChild({ startImmediately: true }))
        yield* TestClock.adjust(`${RunKeyLease.createSecondsMax} seconds`)
        const alias = yield* Fiber.join(fiber)
        yield* TestClock.adjust("500 millis")
        // A busy upstream creates it now.
        hasAnswer = true
        yield* keys.create(alias, terms)
        assert.strictEqual((yield* keys.existing).size, 1)
        if (!isClosed) {
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual((yield* keys.existing).size, 1, "not at once: it may be created later still")
          yield* TestClock.adjust("90 seconds")
          assert.strictEqual((yield* keys.existing).size, 0)
        }
        yield* Scope.close(scope, Exit.void)
        assert.strictEqual((yield* keys.existing).size, 0)
        assert.strictEqual(leases.leftTotal(), isClosed ? 1 : 0, "it may be created later still")
      }).pipe(Effect.provide(quiet))
    )

  it.effect("counts and names a key once that may still be created and could not be deleted", () => {
    const logged: Array<string> = []
    return Effect.gen(function* () {
      const state = { isGone: true }
      const keys = yield* RunKeys.makeMemory({
        fault: (operation) =>
          Effect.suspend(() => {
            if (operation === "create") return Effect.never
            return state.isGone ? Effect.fail(refused("delete", true)) : Effect.void
          })
      })
      const scope = yield* Scope.make()
      const leases = yield* Scope.provide(RunKeyLease.make(keys), scope)
      const { alias } = yield* Effect.scoped(Effect.flatMap(run, leases.open))
      yield* TestClock.adjust(`${RunKeyLease.createSecondsMax + 10} seconds`)
      assert.strictEqual(leases.leftTotal(), 1)
      logged.length = 0
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(leases.leftTotal(), 1)
      const named = logged.filter((line) => line.includes(alias))
      assert.lengthOf(named, 1)
      assert.include(named[0], "was not deleted: LiteLLM answered 401. If it exists, it expires")
    }).pipe(
      Effect.provide(
        Logger.layer([Logger.make(({ message }) => void logged.push(...[message].flat().map(String)))])
      )
    )
  })

  it.effect("fails a run after a bounded time, and deletes a key that may exist all the same", () =>
    Effect.gen(function* () {
      const deleted: Array<string> = []
      const keys = yield* RunKeys.makeMemory({
        fault: (operation, alias) =>
          operation === "create"
            ? Effect.never
            : Effect.sync(() => {
                deleted.push(alias)
              })
      })
      const leases = yield* RunKeyLease.make(keys)
      const fiber = yield* Effect.scoped(
        Effect.flatMap(Effect.flatMap(run, leases.open), ({ alias, key }) =>
          Effect.mapError(key, (error) => ({ alias, error }))
        )
      ).pipe(Effect.flip, Effect.forkChild({ startImmediately: true }))
      yield* TestClock.adjust(`${RunKeyLease.createSecondsMax} seconds`)
      const { alias, error } = yield* Fiber.join(fiber)
      assert.include(error.message, `within ${RunKeyLease.createSecondsMax} s`)
      assert.isTrue(error.isRetryable)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(deleted, [alias])
      assert.strictEqual(leases.leftTotal(), 1)
      yield* TestClock.adjust("2 minutes")
      assert.deepStrictEqual(deleted, [alias, alias], "it may have been created in between")
      assert.strictEqual(leases.leftTotal(), 0)
      yield* TestClock.adjust("5 minutes")
      assert.lengthOf(deleted, 2)
    })
  )
})

describe("the terms of a key", () => {
  it("open the models and routes of the run, and leave the run's own budget in charge", () => {
    const terms = RunKeyTerms.make(
      { runId: RunId.RunId.make("run-000000000001"), runtimeSecondsMax: 60 },
      {
        model: "chat",
        models: { fast: "small", chat: "chat" },
        identity: { billingAccountId: "acct-1", attempt: 3, userId: "user-1" },
        budget: { costUsdMax: 0.5, concurrentCallsMax: 4, requestsPerSecondMax: 10, onExhausted: "refuse" }
      },
      profiles.litellm
    )
    assert.deepStrictEqual(terms, {
      runId: RunId.RunId.make("run-000000000001"),
      models: ["chat", "small"],
      routes: ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"],
      lifetimeSeconds: 960,
      budgetUsdMax: 1,
      concurrentCallsMax: 8,
      requestsPerMinuteMax: 1200,
      spendMetadata: {
        run_id: "run-000000000001",
        attempt: 3,
        user_id: "user-1",
        graph_id: null,
        existing_trace_id: null,
        session_id: null,
        trace_user_id: null
      }
    })
  })

  it("has no limit that the run does not have", () => {
    const terms = RunKeyTerms.make(
      { runId: RunId.RunId.make("run-000000000001"), runtimeSecondsMax: 60 },
      { model: "chat", models: {}, identity: { billingAccountId: "acct-1", attempt: 0 } },
      profiles.litellm
    )
    assert.notProperty(terms, "budgetUsdMax")
    assert.notProperty(terms, "concurrentCallsMax")
    assert.notProperty(terms, "requestsPerMinuteMax")
  })
})
