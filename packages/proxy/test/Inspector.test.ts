/** Order in which bodies are inspected when runs share a thread. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as Inspector from "../src/internal/gateway/Inspector.ts"
import type { InspectionRequest } from "../src/internal/policy/RequestInspection.ts"
import * as Pace from "../../../test/harness/Pace.ts"
import * as ThreadCode from "../src/internal/ThreadCode.ts"
import { chat } from "./GatewaySocket.ts"

const requestOf = (text: string): InspectionRequest => ({
  body: new TextEncoder().encode(text),
  canaries: [],
  policy: {
    api: "chat_completions",
    model: "contract-model",
    models: { "contract-model": "contract-model" },
    cacheScope: "acct",
    unknownFields: "drop",
    betas: [],
    outputTokensMax: undefined,
    outputTokensAbsent: undefined
  }
})

const ordinary = () =>
  requestOf(JSON.stringify(chat({ messages: [{ role: "user", content: "x".repeat(300_000) }] })))

/** Takes seconds, because every number is parsed separately. */
const costly = () =>
  requestOf(
    `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"x",` +
      `"parameters":{"x":[99999999999999999${",1".repeat(1_500_000)}]}}}]}`
  )

const runOf = (id: string): Inspector.Inspected => ({
  runId: RunId.RunId.make(id),
  gate: { worked: () => undefined, pauseMillis: () => 0 }
})

const attacker = runOf("run-000000000001")
const victim = runOf("run-000000000002")

const codeOf = (module: string): ThreadCode.ThreadCode => ({
  file: new URL(`../src/internal/gateway/${module}`, import.meta.url).href
})

const code = codeOf("InspectionWorker.ts")

describe("Inspector", () => {
  const inspector = () => Inspector.make({ code, isAlone: () => false, secondsMax: Pace.hangMillis / 1000 })

  it.live("does not delay an ordinary body behind a slow body of another run", () =>
    Effect.gen(function* () {
      const { inspect } = inspector()
      const heavy = yield* Effect.forkChild(inspect(attacker, costly()), { startImmediately: true })
      yield* inspect(victim, ordinary())
      assert.isUndefined(heavy.pollUnsafe())
      yield* Fiber.interrupt(heavy)
    })
  )

  it.live("refuses a body whose values would exhaust the memory of its thread and end the process", () =>
    Effect.gen(function* () {
      const { inspect } = inspector()
      const values = `${"[".repeat(40)}${"]".repeat(40)},`.repeat((32 * 1024 * 1024 - 300) / 81)
      const { outcome } = yield* inspect(
        attacker,
        requestOf(
          `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"x","parameters":{"x":[${values}0]}}}]}`
        )
      )
      assert.deepInclude(outcome, { _tag: "Refused" })
      assert.deepInclude(outcome._tag === "Refused" ? outcome.refused : undefined, {
        code: "request_too_complex"
      })
      assert.strictEqual((yield* inspect(victim, ordinary())).outcome._tag, "Sent")
    })
  )

  it.live("stops inspecting the bodies of a run that ended", () =>
    Effect.gen(function* () {
      const { inspect } = inspector()
      const waiting = yield* Effect.forEach([costly(), costly(), costly()], (request) =>
        Effect.forkChild(inspect(attacker, request), { startImmediately: true })
      )
      const other = yield* Effect.forkChild(inspect(victim, costly()), { startImmediately: true })
      yield* Fiber.interruptAll(waiting)
      assert.strictEqual((yield* Fiber.join(other)).outcome._tag, "Sent")
    })
  )

  it.live(
    "does not blame a body if the program of its threads does not exist, and inspects small bodies",
    () =>
      Effect.gen(function* () {
        const { inspect } = Inspector.make({ code: codeOf("Nowhere.ts"), isAlone: () => true })
        for (const _ of [1, 2]) {
          const error = yield* Effect.flip(inspect(victim, ordinary()))
          assert.strictEqual(error._tag, "InspectorMissing")
          assert.match(error.detail, /Nowhere\.ts/u)
          assert.strictEqual((error as Inspector.InspectorMissing).remedy, ThreadCode.missingRemedy)
        }
        const small = requestOf(JSON.stringify(chat()))
        assert.strictEqual((yield* inspect(victim, small)).outcome._tag, "Sent")
      })
  )

  it.live("runs its threads from a text", () =>
    Effect.gen(function* () {
      const text =
        `const { parentPort } = require("node:worker_threads")\nparentPort.postMessage("loaded")\n` +
        `parentPort.on("message", ({ id }) => parentPort.postMessage({ id, result: "from a text", processorMillis: 0 }))`
      const { inspect } = Inspector.make({ code: { text }, isAlone: () => false })
      assert.strictEqual((yield* inspect(victim, ordinary())) as unknown, "from a text")
    })
  )
})
