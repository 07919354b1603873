/** Events and ends of runs that do not end by themselves. */
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { SandboxGraphProvider } from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope, Stream } from "effect"
import { context, request, run, told, world } from "./GraphWorld.ts"

/** An agent whose reader throws on any output. */
const broken: Agent = {
  ...minimal,
  id: AgentId.make("broken"),
  reader: {
    feed: () => {
      throw new Error("broken")
    },
    end: minimal.reader.end
  }
}

const nested = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`

describe("GraphLife", () => {
  it.effect("reports a defect as an internal error, not as an abort", () =>
    Effect.gen(function* () {
      const live = yield* run(request({ graphId: "sandbox:broken" }))
      assert.containSubset(yield* live.final, { ok: false, error: "internal", reason: "Defect" })
    }).pipe(
      Effect.scoped,
      Effect.provide(world({ agents: [broken], program: (io) => Effect.as(io.stdout("x"), 0) }))
    )
  )

  it.effect("sends the last events of a run with a defect", () =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request({ graphId: "sandbox:broken" }))
      assert.containSubset(final, { ok: false, error: "internal", reason: "Defect" })
      assert.deepStrictEqual(
        events.slice(-3).map(({ type }) => type),
        ["usage_report", "error", "done"]
      )
    }).pipe(Effect.provide(world({ agents: [broken], program: (io) => Effect.as(io.stdout("x"), 0) })))
  )

  it.effect("is not broken by deeply nested output of an agent", () =>
    Effect.gen(function* () {
      const { events, final } = yield* told(request({ graphId: "sandbox:codex" }))
      assert.containSubset(final, { ok: false, error: "internal", reason: "AgentFailed" })
      assert.strictEqual(events.at(-1)?.type, "done")
    }).pipe(
      Effect.provide(
        world({
          agents: [codex],
          program: (io) =>
            Effect.as(
              io.stdout(
                `{"type":"item.started","item":{"id":"i","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":${nested(20_000)}},"status":"in_progress"}}\n`
              ),
              0
            )
        })
      )
    )
  )

  it.effect("sends the last events to a reader while the scope of the run is closed", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const executor = yield* AggregatingGraphExecutor.make([yield* SandboxGraphProvider])
      const live = yield* Scope.provide(executor.run(request(), context), scope)
      const events: Array<AiEvent> = []
      const reading = yield* Effect.forkChild(
        Stream.runForEach(live.events, (event) => Effect.sync(() => void events.push(event)))
      )
      for (let turn = 0; turn < 100; turn++) yield* Effect.yieldNow
      yield* Scope.close(scope, Exit.void)
      yield* Fiber.await(reading)
      assert.strictEqual((yield* live.final).error, "aborted")
      assert.containSubset(events.at(-2), { type: "error", error: "aborted" })
    }).pipe(Effect.provide(world({ program: () => Effect.never })))
  )
})
