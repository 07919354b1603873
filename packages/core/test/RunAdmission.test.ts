/** Accounts are asked before anything of a run is made, and released after everything is gone. */
import { assert, describe, it } from "@effect/vitest"
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  SandboxRunner,
  Workspace
} from "@cogni/sandbox-core"
import { InsufficientCredits } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Layer } from "effect"
import { hello, llm, record, run, runId, runner, spec } from "./Specs.ts"

const unpaid = new InsufficientCredits({
  billingAccountId: "account-1",
  detail: "it is empty",
  remedy: "Pay"
})

/** A runner whose steps are noted, and whose account may start a run or not. */
const world = (isPaid: boolean) => {
  const steps: Array<string> = []
  const noted = <A, E, R>(name: string, step: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      steps.push(name)
      yield* Effect.addFinalizer(() => Effect.sync(() => steps.push(`${name} is gone`)))
      return yield* step
    })
  const proxy = Layer.effect(
    LlmProxy.LlmProxy,
    Effect.map(LlmProxy.makeMemory(), (inner) =>
      LlmProxy.LlmProxy.of({
        ...inner,
        acquire: (request) => noted("proxy", inner.acquire(request)),
        admissions: {
          check: () => (isPaid ? Effect.void : Effect.fail(unpaid)),
          admit: ({ llm: { identity }, runId: asked, runtimeSecondsMax }) => {
            assert.deepStrictEqual([asked, identity.billingAccountId], [runId, "account-1"])
            assert.isAbove(runtimeSecondsMax, 0)
            return isPaid ? noted("account", Effect.void) : Effect.fail(unpaid)
          }
        }
      })
    )
  )
  const runtime = Layer.effect(
    ContainerRuntime.ContainerRuntime,
    Effect.map(MemoryContainerRuntime.make({ program: hello }), (inner) => ({
      ...inner,
      acquire: (asked) => noted("container", inner.acquire(asked))
    }))
  )
  const workspace = Layer.effect(
    Workspace.Workspace,
    Effect.map(Workspace.Workspace, (inner) => ({
      ...inner,
      acquire: (asked) => noted("workspace", inner.acquire(asked))
    }))
  ).pipe(Layer.provide(Workspace.layerMemory()))
  return { layer: runner({ proxy, runtime, workspace }), steps }
}

describe("admission of a run", () => {
  it.effect("comes before the workspace, the proxy and the container, and ends after them", () => {
    const { layer, steps } = world(true)
    return Effect.gen(function* () {
      yield* run({ ...spec, llm })
      assert.strictEqual(steps[0], "account")
      assert.strictEqual(steps.at(-1), "account is gone")
      assert.sameMembers(steps.slice(1, -1), [
        "workspace",
        "proxy",
        "container",
        "workspace is gone",
        "proxy is gone",
        "container is gone"
      ])
    }).pipe(Effect.provide(layer))
  })

  it.effect("makes nothing for an account that cannot pay, and records why", () => {
    const { layer, steps } = world(false)
    return Effect.gen(function* () {
      const error = yield* Effect.flip(run({ ...spec, llm }))
      assert.deepStrictEqual([error.reason._tag, error.code], ["InsufficientCredits", "insufficient_credits"])
      assert.deepStrictEqual(steps, [])
      const saved = yield* record()
      assert.containSubset(saved, { outcome: { status: "failed", reason: "InsufficientCredits" } })
      const { check } = yield* SandboxRunner.SandboxRunner
      assert.deepStrictEqual(yield* Effect.flip(check({ ...spec, llm })), unpaid)
    }).pipe(Effect.provide(layer))
  })

  it.effect("is not asked for a run without a model", () => {
    const { layer, steps } = world(false)
    return Effect.gen(function* () {
      yield* run(spec)
      assert.notInclude(steps, "account")
      const { check } = yield* SandboxRunner.SandboxRunner
      yield* check(spec)
    }).pipe(Effect.provide(layer))
  })
})
