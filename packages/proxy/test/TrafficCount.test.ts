/** Calls in the record of a run: all are counted, and the first ones are listed. */
import { assert, describe, it } from "@effect/vitest"
import type { LlmCall } from "@cogni/sandbox-core/RunFigures"
import * as TrafficCount from "../src/internal/gateway/TrafficCount.ts"

const call = (requestId: string): LlmCall => ({
  at: "2026-01-01T00:00:00.000Z",
  requestId,
  method: "POST",
  path: "/v1/messages",
  status: 200,
  requestBytes: 1,
  responseBytes: 1,
  durationMs: 1,
  completed: true
})

describe("TrafficCount", () => {
  it("lists the first calls, and counts all", () => {
    const traffic = TrafficCount.make()
    for (let index = 0; index < TrafficCount.callsKeptMax + 5; index++) traffic.call(call(String(index)))
    traffic.add({ callsTotal: 2, refusedTotal: 3 })
    traffic.add({ toolCallsTotal: 1 })
    const { calls, ...totals } = traffic.read()
    assert.strictEqual(calls.length, TrafficCount.callsKeptMax)
    assert.strictEqual(calls[0]?.requestId, "0")
    const callsTotal = TrafficCount.callsKeptMax + 7
    assert.deepStrictEqual(totals, { callsTotal, refusedTotal: 3, toolCallsTotal: 1 })
  })

  it("returns a snapshot that later calls do not change", () => {
    const traffic = TrafficCount.make()
    traffic.call(call("first"))
    const before = traffic.read()
    traffic.call(call("second"))
    assert.deepStrictEqual([before.calls.length, before.callsTotal], [1, 1])
  })
})
