/** Order in which bodies are inspected when runs share a thread. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as Inspector from "../src/internal/gateway/Inspector.ts"
import type { InspectionRequest } from "../src/internal/policy/RequestInspection.ts"
import * as Pace from "../../../test/harness/Pace.ts"
import { chat } from "./GatewaySocket.ts"

const requestOf = (text: string): InspectionRequest => ({
  body: new TextEncoder().encode(text),
  canaries: [],
  policy: {
    api: "chat_completions",
    model: "contract-model",
    models: { "contract-model": "contract-model" },
    billingAccountId: "acct",
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

describe("Inspector", () => {
  const inspector = () => Inspector.make({ isAlone: () => false, secondsMax: Pace.hangMillis / 1000 })

  it.live("does not delay an ordinary body behind a slow body of another run", () =>
    Effect.gen(function* () {
      const { inspect } = inspector()
      const heavy = yield* Effect.forkChild(inspect(attacker, costly()), { startImmediately: true })
      yield* inspect(victim, ordinary())
      assert.isUndefined(heavy.pollUnsafe())
      yield* Fiber.interrupt(heavy)
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
})
