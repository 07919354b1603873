/**
 * The promises of the public API's types. `pnpm check` compiles this file: an error there is a broken promise.
 *
 * A line below `@ts-expect-error` must not compile.
 */
import { describe, expectTypeOf, it } from "@effect/vitest"
import {
  type LlmProxy,
  type RunId,
  type RunResult,
  RunStore,
  SandboxError,
  SandboxRunner,
  UsageObserver,
  type Workspace
} from "@cogni/sandbox-core"
import type * as ContainerRuntime from "@cogni/sandbox-core/ContainerRuntime"
import { DockerContainerRuntime, HostWorkspace } from "@cogni/sandbox-docker"
import {
  type Agent,
  AgentRegistry,
  AggregatingGraphExecutor,
  GrantStore,
  GraphObserver,
  type GraphProvider,
  Repositories,
  SandboxGraphProvider,
  TaskGraphProvider
} from "@cogni/sandbox-graph-provider"
import { Ledger, LedgerLlmProxy } from "@cogni/sandbox-ledger"
import { Tool } from "@cogni/sandbox-loop"
import { GatewayLlmProxy, NginxLlmProxy } from "@cogni/sandbox-proxy"
import { Effect, Layer, Redacted, Schema, type Scope } from "effect"

type Runner = SandboxRunner.SandboxRunner["Service"]

describe("SandboxRunner", () => {
  it("a run succeeds with a result, fails with SandboxError alone, and needs nothing more", () => {
    expectTypeOf<ReturnType<Runner["run"]>>().toEqualTypeOf<
      Effect.Effect<RunResult.RunResult, SandboxError.SandboxError>
    >()
  })

  it("an open sandbox needs a scope", () => {
    expectTypeOf<Effect.Services<ReturnType<Runner["open"]>>>().toEqualTypeOf<Scope.Scope>()
  })

  it("a reason is caught by its name, with its partial result", () => {
    const run = (runner: Runner) => runner.run({ image: "any", argv: ["true"] })
    const recovered = (runner: Runner) =>
      run(runner).pipe(
        Effect.map(() => ""),
        Effect.catchReason("SandboxError", "OomKilled", (reason) => {
          expectTypeOf(reason.partial.output.stdout.text).toEqualTypeOf<string>()
          return Effect.succeed(reason.partial.output.stdout.text)
        })
      )
    expectTypeOf(recovered).returns.toExtend<Effect.Effect<string, SandboxError.SandboxError>>()
    const misspelt = (runner: Runner) =>
      // @ts-expect-error: there is no such reason
      Effect.catchReason("SandboxError", "Tired", () => Effect.void)(run(runner))
    expectTypeOf(misspelt).toBeFunction()
  })

  it("an implementation of a port makes a reason by its tag", () => {
    const { ContainerFailed, RuntimeUnavailable } = SandboxError.Reason.cases
    expectTypeOf(
      new RuntimeUnavailable({ detail: "stopped", remedy: "Start it" })
    ).toExtend<SandboxError.Reason>()
    // @ts-expect-error: a fault without a remedy
    const silent = () => new ContainerFailed({ operation: "create", detail: "planted" })
    expectTypeOf(silent).toBeFunction()
  })

  it("the in-memory runner needs no layer; the real one needs four ports", () => {
    expectTypeOf(SandboxRunner.layerMemory).returns.toExtend<Layer.Layer<SandboxRunner.SandboxRunner>>()
    expectTypeOf<Layer.Services<typeof SandboxRunner.layer>>().toEqualTypeOf<
      ContainerRuntime.ContainerRuntime | LlmProxy.LlmProxy | RunStore.RunStore | Workspace.Workspace
    >()
  })

  it("a spec names an image and a command; a limit has its unit in its name", () => {
    const runner = {} as Runner
    const misspelt = () => [
      // @ts-expect-error: no command
      runner.run({ image: "any" }),
      // @ts-expect-error: an empty command
      runner.run({ image: "any", argv: [] }),
      // @ts-expect-error: a limit without its unit
      runner.run({ image: "any", argv: ["true"], limits: { memory: 1 } })
    ]
    expectTypeOf(misspelt).toBeFunction()
  })

  it("a run ID is no other string", () => {
    expectTypeOf<string>().not.toExtend<RunId.RunId>()
    expectTypeOf<RunId.RunId>().toExtend<string>()
  })
})

describe("layers", () => {
  it("Docker fails when it cannot be reached, and needs nothing", () => {
    expectTypeOf<Layer.Services<ReturnType<typeof DockerContainerRuntime.layer>>>().toBeNever()
    expectTypeOf<Layer.Error<ReturnType<typeof DockerContainerRuntime.layer>>>().toExtend<{
      readonly _tag: "RuntimeUnavailable"
    }>()
    expectTypeOf(HostWorkspace.layer).returns.toEqualTypeOf<Layer.Layer<Workspace.Workspace>>()
  })

  it("the gateway takes its key redacted only", () => {
    const url = "http://127.0.0.1:4000"
    const layers = () => [
      GatewayLlmProxy.layer({ url, key: Redacted.make("sk") }),
      // @ts-expect-error: a key in plain text
      GatewayLlmProxy.layer({ url, key: "sk" })
    ]
    expectTypeOf(layers).toBeFunction()
  })
})

describe("observers of usage", () => {
  const options = { url: "http://127.0.0.1:4000", key: Redacted.make("sk") }
  const gateway = GatewayLlmProxy.layer(options)
  const nginx = () =>
    NginxLlmProxy.layer({
      image: "proxy",
      upstream: { type: "host", url: options.url },
      key: options.key
    })
  it("a gateway and an nginx require an observer of usage, by each of their constructors", () => {
    expectTypeOf<UsageObserver.UsageObserver>().toExtend<Layer.Services<typeof gateway>>()
    expectTypeOf<UsageObserver.UsageObserver>().toExtend<Layer.Services<ReturnType<typeof nginx>>>()
    expectTypeOf<UsageObserver.UsageObserver>().toExtend<
      Effect.Services<ReturnType<typeof GatewayLlmProxy.make>>
    >()
    expectTypeOf<UsageObserver.UsageObserver>().toExtend<
      Effect.Services<ReturnType<typeof NginxLlmProxy.make>>
    >()
  })

  it("a runner over them needs an observer or a ledger, or states that it has no observer", () => {
    const ports = Layer.provide([RunStore.layerMemory, HostWorkspace.layer(), DockerContainerRuntime.layer()])
    const over = {
      gateway: () => SandboxRunner.layer.pipe(Layer.provide(gateway), ports),
      nginx: () => SandboxRunner.layer.pipe(Layer.provide(nginx()), ports),
      none: () => over.gateway().pipe(Layer.provide(UsageObserver.layerNone)),
      billing: () => over.nginx().pipe(Layer.provide(UsageObserver.layer(() => Effect.void))),
      ledger: (options: LedgerLlmProxy.LedgerLlmProxyOptions) =>
        SandboxRunner.layer.pipe(
          Layer.provide(LedgerLlmProxy.layer(gateway, options)),
          Layer.provide(Ledger.layerMemory()),
          ports
        ),
      // Without a model, there is no usage.
      packages: () =>
        SandboxRunner.layer.pipe(Layer.provide(GatewayLlmProxy.layerPackages({ packages: {} })), ports)
    }
    type Needs = { readonly [Name in keyof typeof over]: Layer.Services<ReturnType<(typeof over)[Name]>> }
    /** A program can be run only with a layer that needs nothing more. */
    const isWhole = <_Missing extends never>() => undefined
    const layers = () => [
      // @ts-expect-error: the usage of the runs would be lost
      isWhole<Needs["gateway"]>(),
      // @ts-expect-error: the usage of the runs would be lost
      isWhole<Needs["nginx"]>(),
      isWhole<Needs["none"]>(),
      isWhole<Needs["billing"]>(),
      isWhole<Needs["ledger"]>(),
      isWhole<Needs["packages"]>()
    ]
    expectTypeOf(layers).toBeFunction()
  })
})

describe("agents, graphs and tools", () => {
  it("a registry takes agents of the caller's beside the built-in ones", () => {
    expectTypeOf(AgentRegistry.layer).parameter(0).toEqualTypeOf<ReadonlyArray<Agent.Agent> | undefined>()
    expectTypeOf(AgentRegistry.builtIn).toEqualTypeOf<ReadonlyArray<Agent.Agent>>()
  })

  it("the sandbox's provider is a graph provider", () => {
    expectTypeOf<
      SandboxGraphProvider.SandboxGraphProvider["Service"]
    >().toExtend<GraphProvider.GraphProvider>()
  })

  it("a provider and an executor require an observer of usage, or state that they have no observer", () => {
    type Observer = GraphObserver.GraphObserver
    expectTypeOf<Observer>().toExtend<Layer.Services<ReturnType<typeof SandboxGraphProvider.layer>>>()
    expectTypeOf<Observer>().toExtend<Layer.Services<ReturnType<typeof TaskGraphProvider.layer>>>()
    expectTypeOf<
      Effect.Services<ReturnType<typeof AggregatingGraphExecutor.make>>
    >().toEqualTypeOf<Observer>()
    const both = () =>
      AggregatingGraphExecutor.layer([
        TaskGraphProvider.TaskGraphProvider,
        SandboxGraphProvider.SandboxGraphProvider
      ])
    expectTypeOf<Layer.Services<ReturnType<typeof both>>>().toEqualTypeOf<
      Observer | SandboxGraphProvider.SandboxGraphProvider | TaskGraphProvider.TaskGraphProvider
    >()

    const run = SandboxGraphProvider.SandboxGraphProvider.use(() => Effect.void)
    const silent = SandboxGraphProvider.layer({ enabled: true, models: [] }).pipe(
      Layer.provide([AgentRegistry.layer(), GrantStore.layerMemory, Repositories.layerNoop]),
      Layer.provide(SandboxRunner.layerMemory())
    )
    const programs = () => ({
      silent: Effect.provide(run, silent),
      none: Effect.provide(run, silent.pipe(Layer.provide(GraphObserver.layerNone))),
      billing: Effect.provide(run, silent.pipe(Layer.provide(GraphObserver.layer(() => Effect.void))))
    })
    type Needs = {
      readonly [Name in keyof ReturnType<typeof programs>]: Effect.Services<ReturnType<typeof programs>[Name]>
    }
    // A program that still needs a service cannot be run.
    expectTypeOf<Needs>().toEqualTypeOf<{
      readonly silent: Observer
      readonly none: never
      readonly billing: never
    }>()
  })

  it("a tool's work takes what its schema decodes, and returns what its schema encodes", () => {
    Tool.make({
      name: "acme__double",
      description: "Twice a number",
      effect: "read_only",
      input: Schema.Struct({ value: Schema.Number }),
      output: Schema.Number,
      execute: ({ value }) => {
        expectTypeOf(value).toEqualTypeOf<number>()
        return Effect.succeed(2 * value)
      }
    })
    Tool.make({
      name: "acme__wrong",
      description: "Not a number",
      effect: "read_only",
      input: Schema.Struct({ value: Schema.Number }),
      output: Schema.Number,
      // @ts-expect-error: a string is no number
      execute: () => Effect.succeed("two")
    })
  })
})
