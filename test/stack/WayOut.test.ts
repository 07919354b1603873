/** Faults between a real agent and its model, as the agent, its run and its caller see them. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import type { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import * as RunnerModule from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { Effect, Layer, Redacted } from "effect"
import { container, docker, internalNetwork } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const spec: SandboxSpecInput = {
  image: Images.runtime,
  argv: ["cogni-agent"],
  inputs: [{ name: "messages.json", content: JSON.stringify([{ role: "user", content: "hello" }]) }],
  llm: { model: "m", identity: { billingAccountId: "acct" } },
  limits: { runtimeSecondsMax: Pace.runSecondsMax }
}

/** Runs on the engine of the harness, with its own proxy. */
const through = <A, E>(
  proxy: Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime>,
  use: Effect.Effect<A, E, SandboxRunner>
) => Effect.provide(use, RunnerModule.layer.pipe(Layer.provide(Layer.orDie(proxy))), { local: true })

const nginx = (url: string) =>
  NginxLlmProxy.layer({
    image: Images.proxy,
    upstream: { type: "host", url },
    key: Redacted.make("sk-made-up")
  }).pipe(Layer.provide(UsageObserver.layerNone))

const scripted = Effect.fnUntraced(function* (
  script: readonly [ScriptedModelApi.Step, ...Array<ScriptedModelApi.Step>],
  changes: Partial<SandboxSpecInput> = {}
) {
  const { url } = yield* ScriptedModelApi.acquire({ raw: true, script: ScriptedModelApi.steps(script) })
  return yield* through(
    nginx(url),
    SandboxRunner.use((runner) => runner.run({ ...spec, ...changes }))
  )
})

const envelope = (stdout: string) =>
  JSON.parse(stdout) as { payloads: Array<{ text: string }>; meta: { error: null | { message: string } } }

layer(RunHarness.layer(), { excludeTestServices: true })("access to a model", (it) => {
  it.effect("a refusal of the upstream is an error of the agent and a recorded call", () =>
    Effect.gen(function* () {
      const result = yield* scripted([{ _tag: "Refuse" }])
      assert.strictEqual(result.exitCode, 1)
      assert.match(envelope(result.output.stdout.text).meta.error!.message, /502|upstream/u)
      assert.strictEqual(result.llm?.calls[0]?.status, 502)
    })
  )

  it.effect("an unreachable upstream is an error of the agent", () =>
    Effect.gen(function* () {
      const result = yield* through(
        nginx("http://127.0.0.1:9"),
        SandboxRunner.use((runner) => runner.run(spec))
      )
      assert.strictEqual(result.exitCode, 1)
      assert.isNotNull(envelope(result.output.stdout.text).meta.error)
    })
  )

  it.effect("a broken stream keeps its first part, and is an error of the agent", () =>
    Effect.gen(function* () {
      const result = yield* scripted([{ _tag: "ResetMidStream", events: 3 }])
      const { meta, payloads } = envelope(result.output.stdout.text)
      assert.strictEqual(result.exitCode, 1)
      assert.include(payloads[0]!.text, "0 1 2")
      assert.isNotNull(meta.error)
    })
  )

  it.effect("an HTML page is an error of the agent, not an answer", () =>
    Effect.gen(function* () {
      const result = yield* scripted([{ _tag: "Html", status: 200 }])
      const { meta, payloads } = envelope(result.output.stdout.text)
      assert.strictEqual(result.exitCode, 1)
      assert.isNotNull(meta.error)
      assert.notInclude(payloads[0]!.text, "<html")
    })
  )

  it.effect("an error of the API arrives unchanged", () =>
    Effect.gen(function* () {
      const result = yield* scripted([{ _tag: "Error", status: 429 }])
      assert.strictEqual(result.exitCode, 1)
      assert.include(envelope(result.output.stdout.text).meta.error!.message, "429")
    })
  )

  it.effect("a run with a hanging upstream times out", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        scripted([{ _tag: "Hang" }], { limits: { runtimeSecondsMax: 2, stopGraceSecondsMax: 1 } })
      )
      assert.strictEqual(error.reason._tag, "TimedOut")
    })
  )

  it.effect("a run fails with ProxyFailed as soon as its proxy dies", () =>
    Effect.gen(function* () {
      const { url } = yield* ScriptedModelApi.acquire({
        raw: true,
        script: ScriptedModelApi.steps([{ _tag: "Hang" }])
      })
      const runId = "run-proxydies001"
      const [error] = yield* through(
        nginx(url),
        SandboxRunner.use((runner) =>
          Effect.all(
            [
              Effect.flip(runner.run({ ...spec, runId, argv: ["sleep", "25"] })),
              Effect.sleep("1500 millis").pipe(Effect.andThen(docker("kill", `cogni-${runId}-proxy`)))
            ],
            { concurrency: "unbounded" }
          )
        )
      ).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual(error.reason._tag, "ProxyFailed")
      assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(runId as never), [])
    })
  )

  it.effect("a run fails before the agent starts if the proxy image does not exist", () =>
    Effect.gen(function* () {
      const error = yield* through(
        NginxLlmProxy.layer({
          image: Images.absent,
          upstream: { type: "host", url: "http://127.0.0.1:9" },
          key: Redacted.make("sk-made-up")
        }).pipe(Layer.provide(UsageObserver.layerNone)),
        SandboxRunner.use((runner) => Effect.flip(runner.run(spec)))
      )
      assert.strictEqual(error.reason._tag, "ImageNotFound")
    })
  )

  it.effect(
    "a container on an internal network can be the upstream, and the sandbox has no access to that network",
    () =>
      Effect.gen(function* () {
        const networkName = yield* internalNetwork(`cogni-test-${process.pid}-out`)
        const server =
          "require('http').createServer((q,s)=>{s.setHeader('content-type','application/json');s.end(JSON.stringify({choices:[{message:{role:'assistant',content:'from the network: '+q.headers['x-litellm-end-user-id']}}]}))}).listen(4000)"
        yield* container(
          "--network",
          networkName,
          "--network-alias",
          "litellm",
          "--entrypoint",
          "node",
          Images.runtime,
          "-e",
          server
        )
        const result = yield* through(
          NginxLlmProxy.layer({
            image: Images.proxy,
            upstream: { type: "container", url: "http://litellm:4000", networkName },
            key: Redacted.make("sk-made-up")
          }).pipe(Layer.provide(UsageObserver.layerNone)),
          SandboxRunner.use((runner) => runner.run(spec))
        )
        assert.strictEqual(result.exitCode, 0)
        assert.strictEqual(envelope(result.output.stdout.text).payloads[0]!.text, "from the network: acct")
        assert.deepStrictEqual(result.posture.interfaces, ["lo"])
      })
  )
})
