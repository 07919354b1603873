import { assert, describe, it } from "@effect/vitest"
import { Telemetry } from "@cogni/sandbox-core"
import { Effect, Tracer } from "effect"
import { llm, run, runId, runner, spec } from "./Specs.ts"

const secret = "sk-live-0123456789"

describe("Telemetry", () => {
  it("every attribute has a unique name", () => {
    const names = Object.values(Telemetry.attribute)
    assert.strictEqual(new Set(names).size, names.length)
    for (const name of names) assert.match(name, /^[a-z0-9_]+(\.[a-z0-9_]+)+$/u)
  })

  it.effect("traces a run as one span with its phases below it, without prompt or output", () =>
    Effect.gen(function* () {
      const spans: Array<Tracer.NativeSpan> = []
      yield* run({
        ...spec,
        llm,
        argv: [secret],
        env: { A: secret },
        inputs: [{ name: "prompt", content: secret }]
      }).pipe(
        Effect.withTracer(
          Tracer.make({
            span: (options) => {
              const span = new Tracer.NativeSpan(options)
              spans.push(span)
              return span
            }
          })
        )
      )
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
})
