import { assert, describe, it } from "@effect/vitest"
import { ContainerRuntime, LlmProxy, MemoryContainerRuntime, Workspace } from "@cogni/sandbox-core"
import { LlmProxyContract } from "@cogni/sandbox-core/testing"
import * as ResourceLedger from "../../../test/harness/faults/ResourceLedger.ts"
import { Effect, Exit, Layer, Scope } from "effect"
import { containerSpec, leftovers, runId } from "./Specs.ts"

type Kind = ResourceLedger.Entry["kind"]
const entry = (event: ResourceLedger.Entry["event"], kind: Kind, number = 1): ResourceLedger.Entry => ({
  atMillis: 0,
  event,
  runId,
  kind,
  number
})
const acquired = (kind: Kind, number?: number) => [entry("acquired", kind, number)]
const released = (kind: Kind, number?: number) => [
  entry("releasing", kind, number),
  entry("released", kind, number)
]

const observed = Layer.provideMerge(
  ResourceLedger.observe(
    Layer.mergeAll(MemoryContainerRuntime.layer(), Workspace.layerMemory(), LlmProxy.layerMemory())
  ),
  ResourceLedger.layer
)

const workspace = Workspace.Workspace.use((workspaces) =>
  workspaces.acquire({
    runId,
    source: { type: "temporary" },
    inputs: [],
    planted: [],
    memory: false,
    workspaceBytesMax: 1024
  })
)
const container = ContainerRuntime.ContainerRuntime.use((runtime) => runtime.acquire(containerSpec(runId)))
const proxy = LlmProxy.LlmProxy.use((proxy) => proxy.acquire(LlmProxyContract.requestOf(runId)))
const violations = ResourceLedger.ResourceLedger.use((ledger) => ledger.violations)

describe("ResourceLedger", () => {
  const ledgers: ReadonlyArray<
    readonly [what: string, entries: ReadonlyArray<ResourceLedger.Entry>, violation: RegExp | undefined]
  > = [
    ["an empty ledger", [], undefined],
    [
      "released in reverse order",
      [
        ...acquired("run record"),
        ...acquired("workspace"),
        ...acquired("proxy"),
        ...acquired("container"),
        ...released("container"),
        ...released("proxy"),
        ...released("workspace"),
        ...released("run record")
      ],
      undefined
    ],
    [
      "two of a kind, released in any order",
      [
        ...acquired("container"),
        ...acquired("container", 2),
        ...released("container"),
        ...released("container", 2)
      ],
      undefined
    ],
    ["never released", acquired("container"), /^container 1 of .* never released$/u],
    [
      "one of two never released",
      [...acquired("proxy"), ...acquired("proxy", 2), ...released("proxy")],
      /^proxy 2 of/u
    ],
    [
      "released twice",
      [...acquired("proxy"), ...released("proxy"), ...released("proxy")],
      /released 2 times/u
    ],
    ["released but never acquired", released("proxy"), /never acquired/u],
    [
      "released while needed",
      [
        ...acquired("workspace"),
        ...acquired("container"),
        ...released("workspace"),
        ...released("container")
      ],
      /^workspace 1 of .* while container 1/u
    ],
    [
      "released while its dependent is being released",
      [
        ...acquired("workspace"),
        ...acquired("container"),
        entry("releasing", "container"),
        ...released("workspace"),
        entry("released", "container")
      ],
      /^workspace 1 of .* while container 1/u
    ],
    [
      "a run record released before its proxy",
      [...acquired("run record"), ...acquired("proxy"), ...released("run record"), ...released("proxy")],
      /^run record 1 of .* while proxy 1/u
    ]
  ]
  it.each(ledgers)("checks the order of releases: %s", (_what, entries, violation) => {
    const found = ResourceLedger.violationsOf(entries)
    if (violation === undefined) return assert.deepStrictEqual(found, [])
    assert.lengthOf(found, 1)
    assert.match(found[0]!, violation)
  })

  it.effect("records what a layer acquires and releases", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(workspace.pipe(Effect.andThen(proxy), Effect.andThen(container)))
      const ledger = yield* ResourceLedger.ResourceLedger
      assert.deepStrictEqual(
        (yield* ledger.entries).map(({ event, kind }) => `${event} ${kind}`),
        [
          "acquired workspace",
          "acquired proxy",
          "acquired container",
          "releasing container",
          "released container",
          "releasing proxy",
          "released proxy",
          "releasing workspace",
          "released workspace"
        ]
      )
      assert.deepStrictEqual(yield* violations, [])
    }).pipe(Effect.provide(observed))
  )

  it.effect("reports a scope that is never closed, or closed in the wrong order", () =>
    Effect.gen(function* () {
      const one = yield* Scope.make()
      const other = yield* Scope.make()
      yield* Scope.provide(workspace, one)
      yield* Scope.provide(container, other)
      assert.lengthOf(yield* violations, 2)
      yield* Scope.close(one, Exit.void)
      assert.match((yield* violations).join("\n"), /workspace 1 of .* was released while container 1/u)
      yield* Scope.close(other, Exit.void)
      assert.lengthOf(yield* violations, 1)
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(Effect.provide(observed))
  )

  it.effect("records nothing for a failed acquisition", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(Effect.andThen(container, Effect.flip(container)))
      assert.deepStrictEqual(yield* violations, [])
    }).pipe(Effect.provide(observed))
  )
})
