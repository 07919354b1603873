/** The wrapper around a proxy: every run is entered before it starts, and settled on every path. */
import { assert, describe, it } from "@effect/vitest"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Ledger, LedgerLlmProxy } from "@cogni/sandbox-ledger"
import { Effect, Exit, Layer, Schedule, Scope } from "effect"
import { TestClock } from "effect/testing"

const runId = RunId.RunId.make("run-00000001")

const request = (changes: Partial<LlmProxy.LlmRequest> = {}): LlmProxy.LlmRequest => ({
  runId,
  llm: {
    model: "m",
    models: {},
    identity: { billingAccountId: "acct", attempt: 2, agentId: "pi", userId: "u" },
    unknownFields: "drop",
    caller: "sandbox"
  },
  runtimeSecondsMax: 60,
  tools: [],
  canaries: { policy: "off", planted: [] },
  observe: () => Effect.void,
  ...changes
})

/** A proxy over a ledger whose operations fail while they are listed. */
const start = Effect.fnUntraced(function* (
  options: Partial<LedgerLlmProxy.LedgerLlmProxyOptions> = {},
  calls: ReadonlyArray<object> = [{ inputTokens: 3, outputTokens: 1, costUsd: 0.5 }]
) {
  const failing = new Set<string>()
  const ledger = yield* Ledger.makeMemory({
    fault: (operation) => (failing.has(operation) ? "before" : undefined)
  })
  const inner = yield* LlmProxy.makeMemory({ calls })
  const proxy = yield* LedgerLlmProxy.make(inner, {
    upstream: "litellm",
    host: "here",
    owner: "boot/1/1",
    isOrphaned: () => false,
    callsOf: () => Effect.succeed(undefined),
    ...options
  }).pipe(Effect.provideService(Ledger.Ledger, ledger))
  const run = yield* Scope.make()
  const acquire = (changes?: Partial<LlmProxy.LlmRequest>) =>
    proxy.acquire(request(changes)).pipe(Effect.provideService(Scope.Scope, run))
  return { acquire, close: Scope.close(run, Exit.void), failing, ledger }
})

describe("LedgerLlmProxy", () => {
  it.effect("enters a run before its proxy has a socket, and settles it once when it finishes", () =>
    Effect.gen(function* () {
      const { acquire, close, ledger } = yield* start()
      const endpoint = yield* acquire()
      const [run] = yield* ledger.openRuns("here")
      assert.deepInclude(run, {
        runId,
        attempt: 2,
        billingAccountId: "acct",
        userId: "u",
        agentId: "pi",
        upstream: "litellm",
        model: "m",
        expiresAt: new Date((60 + 3600) * 1000).toISOString()
      })
      const traffic = yield* endpoint.finish
      assert.strictEqual(traffic.callsTotal, 1)
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
      yield* endpoint.finish
      yield* close
      const { entries } = yield* ledger.list({ revisions: "all" })
      assert.strictEqual(entries.length, 1)
      assert.deepInclude(entries[0], { attempt: 2, costUsd: 0.5, inputTokens: 3, priceSource: "upstream" })
    })
  )

  it.effect("refuses a run that the ledger cannot enter, with a remedy", () =>
    Effect.gen(function* () {
      const { acquire, failing, ledger } = yield* start()
      failing.add("open")
      const error = yield* Effect.flip(acquire())
      assert.strictEqual(error._tag, "StoreUnavailable")
      assert.include(error.message, "cannot enter the run into the ledger")
      assert.include(error.message, "Try again")
      failing.clear()
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
    })
  )

  it.effect("refuses a run whose ID and attempt another process has entered", () =>
    Effect.gen(function* () {
      const { acquire, ledger } = yield* start()
      yield* acquire()
      const [run] = yield* ledger.openRuns("here")
      yield* ledger.settle({ run: run!, entries: [], closedAt: run!.openedAt })
      yield* TestClock.adjust("1 second")
      const error = yield* Effect.flip(acquire())
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.include(error.message, "is in the ledger already")
    })
  )

  it.effect("does not end a run of another process when it is refused its ID", () =>
    Effect.gen(function* () {
      const { acquire, ledger } = yield* start()
      yield* acquire()
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Effect.flip(acquire()))._tag, "ProxyFailed")
      yield* TestClock.adjust(`${LedgerLlmProxy.recoverySeconds} seconds`)
      assert.strictEqual((yield* ledger.openRuns("here")).length, 1)
    })
  )

  it.effect("settles a run whose scope closes before it finishes, from its audit", () =>
    Effect.gen(function* () {
      const { acquire, close, ledger } = yield* start({
        callsOf: ({ directory }) =>
          Effect.succeed({
            isWhole: true,
            calls: [{ callId: directory, at: new Date(0).toISOString(), model: "m", stream: true }]
          })
      })
      yield* acquire({ directory: "/runs/1" })
      yield* close
      const { entries } = yield* ledger.list({})
      assert.deepStrictEqual(
        entries.map(({ state, usageUnitId }) => [usageUnitId, state]),
        [["/runs/1", "pending"]]
      )
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
    })
  )

  it.effect("keeps a run open that cannot be settled, and settles it 10 minutes later at the latest", () =>
    Effect.gen(function* () {
      const { acquire, close, failing, ledger } = yield* start({
        callsOf: () => Effect.succeed({ isWhole: true, calls: [] })
      })
      const endpoint = yield* acquire({ directory: "/runs/1" })
      failing.add("settle").add("openRuns")
      yield* endpoint.finish
      yield* close
      yield* TestClock.adjust(`${LedgerLlmProxy.recoverySeconds} seconds`)
      failing.clear()
      assert.strictEqual((yield* ledger.openRuns("here")).length, 1, "an outage loses nothing")
      yield* TestClock.adjust(`${LedgerLlmProxy.recoverySeconds} seconds`)
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
    })
  )

  it.effect("adds nothing to a run that another process settled before its audit was deleted", () =>
    Effect.gen(function* () {
      const { acquire, failing, ledger } = yield* start({
        callsOf: () => Effect.succeed({ calls: [], isWhole: false, isGone: true })
      })
      const endpoint = yield* acquire({ directory: "/runs/1" })
      failing.add("settle")
      yield* endpoint.finish
      failing.clear()
      const [run] = yield* ledger.openRuns("here")
      yield* ledger.settle({ run: run!, entries: [], closedAt: run!.openedAt })
      yield* TestClock.adjust(`${LedgerLlmProxy.recoverySeconds} seconds`)
      assert.deepStrictEqual((yield* ledger.list({})).entries, [])
    })
  )

  it.effect("keeps what a proxy without an audit reported until the ledger can store it", () =>
    Effect.gen(function* () {
      const { acquire, failing, ledger } = yield* start()
      const endpoint = yield* acquire()
      failing.add("settle")
      yield* endpoint.finish
      failing.clear()
      yield* TestClock.adjust(`${LedgerLlmProxy.recoverySeconds} seconds`)
      const { entries } = yield* ledger.list({})
      assert.deepStrictEqual(
        entries.map(({ costUsd }) => costUsd),
        [0.5]
      )
    })
  )

  it.effect("asks a proxy without an audit for its calls if the run ends before anybody did", () =>
    Effect.gen(function* () {
      const { acquire, close, ledger } = yield* start()
      yield* acquire()
      yield* close
      const { entries } = yield* ledger.list({})
      assert.deepStrictEqual(
        entries.map(({ costUsd }) => costUsd),
        [0.5]
      )
    })
  )

  it.effect("has no entry for a run whose proxy did not start", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.makeMemory()
      const broken = new ProxyFailed({ detail: "no socket", remedy: "Try again" })
      const inner = yield* LlmProxy.makeMemory()
      const { acquire } = yield* LedgerLlmProxy.make(
        { ...inner, acquire: () => Effect.fail(broken) },
        {
          host: "here",
          owner: "boot/1/1",
          isOrphaned: () => false,
          callsOf: () => Effect.succeed(undefined)
        }
      ).pipe(Effect.provideService(Ledger.Ledger, ledger))
      assert.strictEqual(yield* Effect.flip(Effect.scoped(acquire(request()))), broken)
      assert.deepStrictEqual((yield* ledger.list({})).entries, [])
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
    })
  )

  it.effect("keeps a run open while its audit cannot be read", () =>
    Effect.gen(function* () {
      const { acquire, ledger } = yield* start({
        callsOf: () => Effect.fail({ message: "the audit cannot be read" })
      })
      const endpoint = yield* acquire({ directory: "/runs/1" })
      yield* endpoint.finish
      assert.strictEqual((yield* ledger.openRuns("here")).length, 1)
    })
  )

  it.effect("recovers the runs of dead processes of this machine when it starts", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.makeMemory()
      const { acquire } = yield* start()
      yield* acquire()
      const open = { ...LedgerRun, owner: "boot/9/9" }
      yield* ledger.open(open)
      yield* ledger.open({ ...open, runId: RunId.RunId.make("run-00000002"), host: "elsewhere" })
      yield* LedgerLlmProxy.make(yield* LlmProxy.makeMemory(), {
        upstream: "litellm",
        host: "here",
        owner: "boot/1/1",
        isOrphaned: ({ owner }) => owner === "boot/9/9",
        callsOf: () => Effect.succeed({ isWhole: true, calls: [] })
      }).pipe(Effect.provideService(Ledger.Ledger, ledger))
      yield* Effect.repeat(Effect.yieldNow, Schedule.recurs(50))
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
      assert.strictEqual((yield* ledger.openRuns("elsewhere")).length, 1)
    })
  )

  it.effect("lets the program's own observer hear a run, too, and needs none", () =>
    Effect.gen(function* () {
      const heard: Array<number> = []
      const bill = UsageObserver.layer(({ traffic }) =>
        Effect.sync(() => void heard.push(traffic.usage?.costUsd ?? 0))
      )
      const inner = Layer.effect(
        LlmProxy.LlmProxy,
        Effect.flatMap(
          LlmProxy.makeMemory({ calls: [{ inputTokens: 3, outputTokens: 1, costUsd: 0.5 }] }),
          UsageObserver.observed
        )
      )
      const ledger = yield* Ledger.makeMemory()
      const layer = LedgerLlmProxy.layer(inner, {
        host: "here",
        owner: "boot/1/1",
        isOrphaned: () => false,
        callsOf: () => Effect.succeed(undefined)
      }).pipe(Layer.provide(Layer.succeed(Ledger.Ledger, ledger)))
      const runOn = (proxy: Layer.Layer<LlmProxy.LlmProxy>, attempt: number) =>
        Effect.gen(function* () {
          const { acquire } = yield* LlmProxy.LlmProxy
          const { llm } = request()
          yield* (yield* acquire(request({ llm: { ...llm!, identity: { ...llm!.identity, attempt } } })))
            .finish
        }).pipe(Effect.scoped, Effect.provide(proxy))
      yield* runOn(layer.pipe(Layer.provide(bill)), 0)
      assert.deepStrictEqual(heard, [0.5])
      yield* runOn(layer, 1)
      assert.deepStrictEqual(heard, [0.5])
      const { entries } = yield* ledger.list({})
      assert.deepStrictEqual(entries.map(({ attempt, costUsd }) => [attempt, costUsd]).toSorted(), [
        [0, 0.5],
        [1, 0.5]
      ])
    })
  )

  it.effect("leaves runs without a model alone", () =>
    Effect.gen(function* () {
      const { failing, ledger, acquire } = yield* start()
      failing.add("open")
      const { llm: _, ...rest } = request()
      const endpoint = yield* acquire({ ...rest, llm: undefined })
      yield* endpoint.finish
      assert.deepStrictEqual((yield* ledger.list({})).entries, [])
    })
  )
})

const LedgerRun = {
  runId: RunId.RunId.make("run-00000009"),
  attempt: 0,
  billingAccountId: "acct",
  upstream: "litellm",
  model: "m",
  host: "here",
  openedAt: new Date(0).toISOString(),
  expiresAt: new Date(0).toISOString(),
  directory: "/runs/9"
}
