/** Tests the log lines of a run: one for each state, with the names by which it is found, and without its content. */
import { Telemetry } from "@cogni/sandbox-core"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger, type LogLevel, References } from "effect"
import { llm, runId, runner, spec } from "./Specs.ts"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"

const secret = "sk-live-0123456789"

interface Line {
  readonly level: string
  readonly message: string
  readonly annotations: Readonly<Record<string, unknown>>
}

/** Runs an agent, and returns the lines of its states. */
const lines = Effect.fnUntraced(function* (level?: LogLevel.Severity) {
  const heard: Array<Line> = []
  const logger = Logger.make<unknown, void>(({ fiber, logLevel, message }) => {
    const annotations = fiber.getRef(References.CurrentLogAnnotations)
    if (annotations[Telemetry.attribute.runState] !== undefined)
      heard.push({ level: logLevel, message: String(message), annotations })
  })
  const identity = {
    ...llm.identity,
    agentId: "codex",
    sessionId: "thread-1",
    existingTraceId: "a".repeat(32)
  }
  yield* SandboxRunner.SandboxRunner.use((made) =>
    made.run({ ...spec, argv: [secret], env: { A: secret }, llm: { ...llm, identity } })
  ).pipe(
    Effect.provide(
      runner({ program: ({ stdout }) => Effect.as(stdout(secret), 7) }).pipe(
        Layer.provide(level === undefined ? Layer.empty : Layer.succeed(Telemetry.RunLogLevel, level)),
        Layer.merge(Logger.layer([logger]))
      )
    ),
    Effect.provideService(References.MinimumLogLevel, "All")
  )
  return heard
})

describe("RunLog", () => {
  it.effect("logs each state of a run once, with its names and without its content", () =>
    Effect.gen(function* () {
      const heard = yield* lines("Info")
      assert.deepStrictEqual(
        heard.map(({ annotations, level }) => [level, annotations[Telemetry.attribute.runState]]),
        [
          ["Info", "started"],
          ["Info", "ready"],
          ["Info", "ended"]
        ]
      )
      for (const { annotations, message } of heard) {
        assert.include(message, runId)
        assert.containSubset(annotations, {
          "sandbox.run.id": runId,
          "sandbox.run.attempt": 0,
          "sandbox.account.id": "account-1",
          "gen_ai.agent.id": "codex",
          agentVariant: "codex",
          "gen_ai.conversation.id": "thread-1",
          trace_id: "a".repeat(32)
        })
      }
      assert.containSubset(heard[2]?.annotations, {
        "sandbox.run.outcome": "exited",
        "process.exit.code": 7
      })
      assert.notInclude(JSON.stringify(heard), secret)
    })
  )

  it.effect("logs them at Debug unless the program sets another level", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual([...new Set((yield* lines()).map(({ level }) => level))], ["Debug"])
    })
  )
})
