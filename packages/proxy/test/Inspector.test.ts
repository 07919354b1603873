/** Whose body waits for whose, among runs that share a thread. */
import { assert, describe, it } from "@effect/vitest"
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

/** Takes seconds: every number is read by itself. */
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
  it("keeps no ordinary body waiting behind one of another run that takes long", async () => {
    const inspector = Inspector.make({ isAlone: () => false, secondsMax: Pace.hangMillis / 1000 })
    const order: Array<string> = []
    const heavy = Promise.resolve(inspector.inspect(attacker, costly())).then(
      () => order.push("costly"),
      () => order.push("costly")
    )
    await inspector.inspect(victim, ordinary())
    order.push("ordinary")
    inspector.close()
    await heavy
    assert.deepStrictEqual(order, ["ordinary", "costly"])
  })

  it("looks into nothing more of a run that is over", async () => {
    const inspector = Inspector.make({ isAlone: () => false, secondsMax: Pace.hangMillis / 1000 })
    const waiting = [costly(), costly(), costly()].map((request) =>
      Promise.resolve(inspector.inspect(attacker, request)).then(
        () => "inspected",
        (error: Error) => error.message
      )
    )
    const other = inspector.inspect(victim, costly())
    inspector.forget(attacker.runId)
    assert.deepStrictEqual(
      await Promise.all(waiting),
      waiting.map(() => "the run is over")
    )
    assert.strictEqual((await other).outcome._tag, "Sent")
    inspector.close()
  })
})
