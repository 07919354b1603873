import { assert, describe, it } from "@effect/vitest"
import { Telemetry } from "@cogni/sandbox-core"
import { LlmProxy, MemoryContainerRuntime, SandboxRunner } from "@cogni/sandbox-core"
import { Effect, Layer, Option } from "effect"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"
import { llm, run, runId, runner, spec } from "./Specs.ts"

const secret = "sk-live-0123456789"

describe("Telemetry", () => {
  it("every attribute has a unique name", () => {
    const names = Object.values(Telemetry.attribute)
    assert.strictEqual(new Set(names).size, names.length)
    // Names of log lines that other systems read.
    const inLogs = new Set<string>([Telemetry.attribute.agentVariant, Telemetry.attribute.traceId])
    for (const name of names.filter((one) => !inLogs.has(one)))
      assert.match(name, /^[a-z0-9_]+(\.[a-z0-9_]+)+$/u)
  })

  it.effect("traces a run as one span with its phases below it, without prompt or output", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      yield* run({
        ...spec,
        llm,
        argv: [secret],
        env: { A: secret },
        inputs: [{ name: "prompt", content: secret }]
      }).pipe(Effect.withTracer(tracer))
      const root = spans.find(({ name }) => name === "SandboxRunner.run")
      assert.strictEqual(root?.attributes.get(Telemetry.attribute.runId), runId)
      assert.strictEqual(root?.attributes.get(Telemetry.attribute.exitCode), 0)
      const names = spans.map(({ name }) => name)
      for (const phase of [
        "workspace",
        "socket",
        "create",
        "start",
        "proxy",
        "entrypoint",
        "agent",
        "collect"
      ]) {
        assert.include(names, `SandboxRunner.${phase}`)
      }
      for (const span of spans) assert.notInclude(JSON.stringify([span.name, ...span.attributes]), secret)
    }).pipe(Effect.provide(runner({ program: ({ stdout }) => Effect.as(stdout(secret), 0) })))
  )

  const recorded = () => {
    const { spans, tracer } = RecordingTracer.make()
    const named = (name: string) => spans.find((span) => span.name === name) ?? assert.fail(name)
    return { named, traced: Effect.withTracer(tracer) }
  }

  it.effect(
    "gives the span of a failed run the reason as error.type, and that of a successful one none",
    () =>
      Effect.gen(function* () {
        const failed = recorded()
        yield* Effect.flip(failed.traced(run()))
        assert.strictEqual(failed.named("SandboxRunner.run").attributes.get("error.type"), "ImageNotFound")
        const succeeded = recorded()
        yield* succeeded
          .traced(run())
          .pipe(Effect.provide(runner({ program: () => Effect.succeed(3) }), { local: true }))
        assert.isFalse(succeeded.named("SandboxRunner.run").attributes.has("error.type"))
      }).pipe(Effect.provide(runner({ runtime: MemoryContainerRuntime.layer({ images: new Set() }) })))
  )

  it.effect("gives the span of a command the run, its exit code, or its error", () => {
    const { argv: _argv, ...openSpec } = spec
    const program: MemoryContainerRuntime.Program = ({ argv, stdout, terminated }) =>
      argv[0] === "sleep"
        ? Effect.as(terminated, 143)
        : argv[0] === "flood"
          ? Effect.forever(stdout("x".repeat(1000)))
          : Effect.succeed(9)
    return Effect.gen(function* () {
      const { exec } = yield* SandboxRunner.SandboxRunner.use((made) =>
        made.open({ ...openSpec, limits: { outputBytesMax: 10_000 } })
      )
      const nine = recorded()
      yield* nine.traced(exec(["nine"]))
      const { attributes } = nine.named("Executor.exec")
      assert.strictEqual(attributes.get(Telemetry.attribute.runId), runId)
      assert.strictEqual(attributes.get(Telemetry.attribute.exitCode), 9)
      assert.isFalse(attributes.has("error.type"))
      const flood = recorded()
      yield* Effect.flip(flood.traced(exec(["flood"])))
      assert.strictEqual(flood.named("Executor.exec").attributes.get("error.type"), "OutputLimitExceeded")
    }).pipe(Effect.scoped, Effect.provide(runner({ program })))
  })

  it.effect("hands the proxy the run's span as traceparent, and nothing without a tracer", () => {
    const asked: Array<string | undefined> = []
    const proxy = Layer.effect(
      LlmProxy.LlmProxy,
      Effect.map(LlmProxy.makeMemory(), (memory) => ({
        ...memory,
        acquire: (request: LlmProxy.LlmRequest) =>
          Effect.andThen(
            Effect.sync(() => asked.push(request.traceparent)),
            memory.acquire(request)
          )
      }))
    )
    const asks = (over: object) =>
      run({ ...spec, llm, ...over }).pipe(Effect.provide(runner({ proxy, program: () => Effect.succeed(0) })))
    return Effect.gen(function* () {
      yield* asks({})
      const { named, traced } = recorded()
      yield* traced(asks({}))
      const root = named("SandboxRunner.run")
      assert.deepStrictEqual(asked, [undefined, `00-${root.traceId}-${root.spanId}-01`])
      assert.isTrue(Option.isNone(root.parent))
    })
  })
})
