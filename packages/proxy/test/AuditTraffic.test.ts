/** Usage of a killed run, from its audit: each call once, and nothing that cannot be trusted. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import * as AuditLog from "../src/AuditLog.ts"
import * as AuditTraffic from "../src/AuditTraffic.ts"
import * as AuditUsage from "../src/internal/audit/AuditUsage.ts"
import type { Prices } from "../src/Prices.ts"
import { ended, linesOf, opened, runId, started } from "./AuditLines.ts"
import * as Gateway from "./GatewaySocket.ts"

const trafficOf = (text: string, prices?: Prices) => {
  const traffic = AuditUsage.make(runId, prices)
  traffic.push(Buffer.from(text))
  return traffic.end()
}

const told = { inputTokens: 11, outputTokens: 5 }
const entries = [opened, started("a"), ended("a", told), started("b"), started("c"), ended("c", told)]
const lines = linesOf(entries)

describe("AuditTraffic", () => {
  it("reports ended calls as told, and open calls as reserved and estimated", () => {
    const traffic = trafficOf(lines.join(""))
    assert.deepInclude(traffic, {
      proxy: "gateway (directory)",
      upstream: "http://litellm:4000",
      callsTotal: 3,
      unreadableRows: 0
    })
    const calls = new Map(traffic.calls.map((call) => [call.callId, call]))
    assert.deepStrictEqual(calls.get("a")?.usage, told)
    assert.deepStrictEqual(calls.get("b")?.usage, { inputTokens: 600, outputTokens: 50, estimated: true })
    assert.deepInclude(calls.get("b"), { outcome: "run_ended", completed: false, durationMs: 2000 })
    assert.deepInclude(traffic.usage, { calls: 3, inputTokens: 622, outputTokens: 60 })
    const verdict = AuditLog.verify(Buffer.from(lines.join("")), { runId, ended: false })
    assert.deepStrictEqual(traffic.auditHead, verdict._tag === "Whole" ? verdict.head : undefined)
  })

  it("prices open calls, if it knows the prices", () => {
    const { usage } = trafficOf(lines.join(""), { m: { input: 1_000_000, output: 2_000_000 } })
    assert.strictEqual(usage?.costUsd, 622 + 2 * 60)
    assert.notProperty(trafficOf(lines.join("")).usage, "costUsd")
  })

  it.prop(
    "reports exactly the calls that were completely recorded, wherever the process was killed",
    { cut: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: lines.join("").length })) },
    ({ cut }) => {
      const text = lines.join("").slice(0, cut)
      const whole = text.split("\n").length - 1
      const expected = entries
        .slice(0, whole)
        .flatMap((entry) => (entry.type === "call.started" ? [entry.callId] : []))
      const traffic = trafficOf(text)
      assert.sameMembers(
        traffic.calls.map(({ callId }) => callId),
        expected
      )
      assert.strictEqual(traffic.callsTotal, expected.length)
      assert.strictEqual(traffic.auditHead?.entries, whole)
      assert.deepStrictEqual(trafficOf(text), traffic)
    },
    { arbitrary: { runs: 300, seed: "cuts-1" } }
  )

  it.each<[string, (lines: Array<string>) => void]>([
    ["changed", (all) => (all[2] = all[2]!.replace(`"inputTokens":11`, `"inputTokens":12`))],
    ["removed", (all) => all.splice(2, 1)],
    ["inserted", (all) => all.splice(2, 0, all[1]!)],
    ["of another run", (all) => all.splice(0, all.length, "{}\n")]
  ])("trusts no entry from the first %s one on: the rest of the usage is unknown", (_, change) => {
    const all = [...lines]
    change(all)
    const traffic = trafficOf(all.join(""))
    assert.strictEqual(traffic.unreadableRows, 1)
    assert.strictEqual(traffic.callsTotal, traffic.calls.length + 1)
    assert.notProperty(traffic, "usage")
    assert.notInclude(JSON.stringify(traffic.calls), `"inputTokens":12`)
  })

  it.live("reads the audit in a run's directory, and returns nothing if it has no audit", () =>
    Effect.gen(function* () {
      const directory = yield* Gateway.directory
      const read = AuditTraffic.reader()
      assert.isUndefined(yield* read({ runId, directory }))
      const path = join(directory, AuditLog.relativePath)
      mkdirSync(dirname(path))
      writeFileSync(path, lines.join(""))
      assert.deepStrictEqual(yield* read({ runId, directory }), {
        ...trafficOf(lines.join("")),
        auditPath: path
      })
    })
  )

  it.live("fails if an audit exists and cannot be read, so that its usage is not taken for none", () =>
    Effect.gen(function* () {
      const directory = yield* Gateway.directory
      mkdirSync(join(directory, AuditLog.relativePath), { recursive: true })
      const error = yield* Effect.flip(AuditTraffic.reader()({ runId, directory }))
      assert.include(error.message, `the audit of ${runId} cannot be read`)
    })
  )
})
