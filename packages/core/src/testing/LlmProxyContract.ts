/**
 * The contract of every `LlmProxy`: it provides a socket for each run, answers on it, keeps its traffic separate, and
 * removes it when the scope closes.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope } from "effect"
import type { Mount } from "../ContainerMount.ts"
import { LlmProxy, type LlmRequest } from "../LlmProxy.ts"
import { socketPath } from "../SandboxPlace.ts"
import * as RunId from "../RunId.ts"
import type { LlmAccess } from "../SpecFields.ts"

/** Parts of the contract that depend on the backend. */
interface Fixture<R> {
  /** Names of a run's remaining resources, of whatever kind this proxy uses. */
  readonly leftovers?: ((runId: RunId.RunId) => Effect.Effect<ReadonlyArray<string>, unknown, R>) | undefined
  /** An empty directory of this host, mounted for a socket. */
  readonly socketMount?: Effect.Effect<Mount, unknown, R | Scope.Scope> | undefined
  /** Ends the run's proxy as a fault would. */
  readonly kill?: ((runId: RunId.RunId) => Effect.Effect<void, unknown, R>) | undefined
}

/** A request for a model. */
interface ModelRequest extends LlmRequest {
  readonly llm: LlmAccess
}

/** A minimal request. */
export const requestOf = (runId: RunId.RunId, over: Partial<ModelRequest> = {}): ModelRequest => ({
  runId,
  llm: {
    model: "contract-model",
    models: {},
    identity: { billingAccountId: "contract", attempt: 0 },
    unknownFields: "drop",
    caller: "sandbox"
  },
  runtimeSecondsMax: 60,
  tools: [],
  canaries: { policy: "off", planted: [] },
  observe: () => Effect.void,
  ...over
})

const targetOf = (path: string) => path.slice(0, path.lastIndexOf("/"))

const acquire = (runId: RunId.RunId) => LlmProxy.use((proxy) => proxy.acquire(requestOf(runId)))

const acquired = Effect.flatMap(RunId.generate, acquire)

export const suite = <R, E>(
  name: string,
  layer: Layer.Layer<LlmProxy | R, E>,
  fixture: Fixture<NoInfer<R>> = {}
): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`LlmProxy (${name})`, (it) => {
    const leftovers = fixture.leftovers ?? (() => Effect.succeed([]))

    it.effect("mounts the socket's directory, read-only, and becomes ready", () =>
      Effect.gen(function* () {
        const endpoint = yield* acquired
        assert.deepStrictEqual(
          endpoint.mounts.map(({ readOnly, target }) => ({ readOnly, target })),
          [{ readOnly: true, target: targetOf(socketPath) }]
        )
        yield* endpoint.ready
        yield* endpoint.ready
      })
    )

    it.effect("refuses limits that it cannot enforce, if it does not read bodies", () =>
      Effect.gen(function* () {
        const proxy = yield* LlmProxy
        if (proxy.capabilities.inspectsBodies) return
        const runId = yield* RunId.generate
        const { llm, ...request } = requestOf(runId)
        for (const unread of [
          { ...request, llm: { ...llm, budget: { callsMax: 1, onExhausted: "refuse" } } },
          { ...request, llm: { ...llm, models: { fast: "other" } } },
          { ...request, llm: { ...llm, unknownFields: "refuse" } },
          { ...request, llm, canaries: { policy: "stop", planted: [] } }
        ] as const) {
          const error = yield* Effect.flip(proxy.acquire(unread))
          assert.include(error.message, "does not read bodies", JSON.stringify(unread))
        }
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect("listens in a directory that the sandbox has already, if it can", () =>
      Effect.gen(function* () {
        const proxy = yield* LlmProxy
        const { socketMount } = fixture
        if (proxy.capabilities.listensInMount !== true || socketMount === undefined) return
        const mount = yield* socketMount
        yield* Effect.scoped(
          Effect.gen(function* () {
            const endpoint = yield* proxy.acquire(requestOf(yield* RunId.generate, { socketMount: mount }))
            assert.deepStrictEqual(endpoint.mounts, [mount])
            yield* endpoint.ready
            assert.strictEqual(endpoint.hostSocketPath, `${mount.source}/llm.sock`)
          })
        )
      })
    )

    it.effect("does not fail by itself while the run needs it, and starts without traffic", () =>
      Effect.gen(function* () {
        const endpoint = yield* acquired
        yield* endpoint.ready
        assert.strictEqual((yield* endpoint.failure.pipe(Effect.timeoutOption("300 millis")))._tag, "None")
        assert.deepStrictEqual((yield* endpoint.traffic).calls, [])
      })
    )

    it.effect("finish returns the final traffic, and the same when repeated", () =>
      Effect.gen(function* () {
        const endpoint = yield* acquired
        yield* endpoint.ready
        const last = yield* endpoint.finish
        assert.deepStrictEqual([last.calls, last.callsTotal], [[], 0])
        assert.deepStrictEqual(yield* endpoint.finish, last)
      })
    )

    it.effect("gives two concurrent runs separate sockets", () =>
      Effect.gen(function* () {
        const [one, other] = yield* Effect.all([acquired, acquired], { concurrency: "unbounded" })
        yield* Effect.all([one.ready, other.ready], { concurrency: "unbounded" })
        assert.notStrictEqual(one.mounts[0]?.source, other.mounts[0]?.source)
      })
    )

    it.effect("leaves nothing behind after its scope is closed: ready, not yet ready, or interrupted", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        yield* Effect.scoped(Effect.flatMap(acquire(runId), (endpoint) => endpoint.ready))
        assert.deepStrictEqual(yield* leftovers(runId), [])
        yield* Effect.scoped(acquire(runId))
        assert.deepStrictEqual(yield* leftovers(runId), [])
        const fiber = yield* acquire(runId).pipe(
          Effect.andThen(Effect.never),
          Effect.scoped,
          Effect.forkChild({ startImmediately: true })
        )
        yield* Effect.sleep("20 millis")
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    const { kill } = fixture
    if (kill !== undefined) {
      it.effect("fails with ProxyFailed when it ends while the run still needs it", () =>
        Effect.gen(function* () {
          const runId = yield* RunId.generate
          const endpoint = yield* acquire(runId)
          yield* endpoint.ready
          const watcher = yield* Effect.forkScoped(Effect.flip(endpoint.failure))
          yield* kill(runId)
          const error = yield* Fiber.join(watcher).pipe(Effect.timeout("5 minutes"))
          assert.strictEqual(error._tag, "ProxyFailed")
        })
      )
    }
  })
