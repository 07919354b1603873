/** The gateway on real Docker, with its sockets in a host directory and in a container: leases, isolation, cleanup. */
import { assert, describe, it, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import { Context, Effect, Exit, Layer, Redacted, Scope } from "effect"
import { execFileSync } from "node:child_process"
import * as Await from "../harness/Await.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const key = "sk-planted-5e1f70-in-a-gateway"

const options = (carrier: "auto" | "directory" | "container", url = "http://127.0.0.1:4000") => ({
  url,
  key: Redacted.make(key),
  carrier,
  image: Images.gateway,
  tools: [CurrentTime.tool]
})

/** Runs the `docker` CLI, independent of the code under test. */
const docker = (...argv: ReadonlyArray<string>) => execFileSync("docker", argv, { encoding: "utf8" })

/** Lists the running socket containers of this process. */
const gateways = () =>
  docker(
    "ps",
    "--quiet",
    "--filter",
    `label=${ResourceLabels.label.role}=gateway`,
    "--filter",
    `label=${ResourceLabels.label.owner}=${ResourceLabels.formatOwner(HostOwner.self())}`
  )
    .split("\n")
    .filter((id) => id !== "")

for (const carrier of ["auto", "directory", "container"] as const) {
  LlmProxyContract.suite(
    `gateway, ${carrier}, on Docker`,
    GatewayLlmProxy.layer(options(carrier)).pipe(
      Layer.provide(UsageObserver.layerNone),
      Layer.provideMerge(DockerContainerRuntime.layer(Engine.options))
    ),
    {
      leftovers: (runId) => Effect.flatMap(ContainerRuntime, (runtime) => runtime.leftovers(runId)),
      ...(carrier === "container"
        ? { kill: () => Effect.sync(() => void docker("kill", "--signal", "KILL", ...gateways())) }
        : {})
    }
  )
}

class Upstream extends Context.Service<Upstream, ModelApi.ModelApi>()("test/GatewayUpstream") {
  static readonly layer = Layer.effect(Upstream, ModelApi.acquire)
}

const proxy = Layer.unwrap(
  Effect.map(Upstream, ({ url }) =>
    GatewayLlmProxy.layer(options("container", url)).pipe(Layer.provide(UsageObserver.layerNone))
  )
)

const asked = (model: string) =>
  `fetch("http://localhost:8080/v1/chat/completions", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "${model}", messages: [{ role: "user", content: "hi" }] }) })`

/** Script that calls a model by name, and prints the status and the body. */
const ask = (model: string) => `${asked(model)}.then(async (r) => console.log(r.status, await r.text()))`

const specOf = (model: string, script = ask(model)) => ({
  image: Images.runtime,
  argv: ["node", "-e", script] as const,
  llm: { model, identity: { billingAccountId: `acct-${model}` } }
})

layer(RunHarness.layer(proxy).pipe(Layer.provideMerge(Upstream.layer)), {
  excludeTestServices: true
})("a gateway with sockets in a container", (it) => {
  it.effect("keeps concurrent runs apart that need more than one container", () =>
    Effect.gen(function* () {
      const { run } = yield* SandboxRunner.SandboxRunner
      const names = Array.from({ length: 20 }, (_, index) => `model-${index}`)
      const results = yield* Effect.forEach(
        names,
        // Keeps all runs alive until each has its lease, which takes more slots than one container has.
        (name) => run(specOf(name, `setTimeout(() => ${ask(name)}, 6000)`)),
        { concurrency: "unbounded" }
      )
      for (const [index, result] of results.entries()) {
        assert.match(result.output.stdout.text, /^200 /u, result.output.stderr.text)
        assert.include(result.output.stdout.text, `"model":"model-${index}"`)
        assert.deepStrictEqual(
          result.llm!.calls.map(({ model }) => model),
          [`model-${index}`]
        )
      }
      assert.isAtLeast(gateways().length, 2)
      const { received } = yield* Upstream
      for (const { body } of yield* received)
        assert.strictEqual(body["user"], `acct-${String(body["model"])}`)
    })
  )

  it.effect("a reused slot serves only its next run", () =>
    Effect.gen(function* () {
      const { run } = yield* SandboxRunner.SandboxRunner
      const before = gateways().length
      for (const name of ["first", "second", "third"]) {
        const result = yield* run(specOf(name, `${ask(name)}; ${ask("first")}`))
        const statuses = [...result.output.stdout.text.matchAll(/^(\d{3}) /gmu)].map(([, status]) => status)
        assert.deepStrictEqual(statuses.toSorted(), name === "first" ? ["200", "200"] : ["200", "404"])
      }
      assert.strictEqual(gateways().length, before)
    })
  )

  it.effect("the container is as hardened as a sandbox, and does not have the key", () =>
    Effect.gen(function* () {
      yield* SandboxRunner.SandboxRunner.use(({ run }) => run(specOf("m")))
      const [id] = gateways()
      const inspected = docker("inspect", id!)
      const [{ Config, HostConfig, Mounts }] = JSON.parse(inspected)
      assert.strictEqual(HostConfig.NetworkMode, "none")
      assert.isTrue(HostConfig.ReadonlyRootfs)
      assert.deepStrictEqual(HostConfig.CapDrop, ["ALL"])
      assert.strictEqual(HostConfig.LogConfig.Type, "none")
      assert.strictEqual(Config.User, "999:999")
      assert.deepStrictEqual(
        [...new Set(Mounts.map(({ Type }: { readonly Type: string }) => Type))],
        ["volume"]
      )
      assert.notInclude(inspected, key)
      assert.notInclude(docker("top", id!), key)
    })
  )

  it.effect("a run fails with ProxyFailed if its container dies, and the next run gets a new container", () =>
    Effect.gen(function* () {
      const { run } = yield* SandboxRunner.SandboxRunner
      const { received } = yield* Upstream
      const before = (yield* received).length
      const error = yield* run(
        specOf("m", `${ask("m")}.catch(() => {}).then(() => setTimeout(() => {}, 600000))`)
      ).pipe(
        Effect.flip,
        Effect.raceFirst(
          Effect.andThen(
            Await.until(
              "the agent has asked its model",
              Effect.map(received, ({ length }) => length > before)
            ),
            Effect.andThen(
              Effect.sync(() => docker("kill", "--signal", "KILL", ...gateways())),
              Effect.never
            )
          )
        )
      )
      assert.strictEqual(error.reason._tag, "ProxyFailed", error.message)
      assert.match(error.message, /container/u)
      const result = yield* run(specOf("m"))
      assert.match(result.output.stdout.text, /^200 /u)
    })
  )
})

describe("the end of a gateway with sockets in a container", () => {
  it.live("removes its container and its volumes", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const before = gateways().length
      const context = yield* Layer.buildWithScope(
        GatewayLlmProxy.layer(options("container")).pipe(
          Layer.provide(UsageObserver.layerNone),
          Layer.provide(DockerContainerRuntime.layer(Engine.options))
        ),
        scope
      )
      const acquired = yield* LlmProxy.use((service) =>
        Effect.flatMap(RunId.generate, (runId) => service.acquire(LlmProxyContract.requestOf(runId)))
      ).pipe(Effect.provide(context), Scope.provide(scope))
      yield* acquired.ready
      assert.strictEqual(gateways().length, before + 1)
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(gateways().length, before)
      assert.deepStrictEqual(yield* LeakCheck.leftovers, [])
    }).pipe(Effect.provide(Engine.api()))
  )
})
