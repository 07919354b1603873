/** Calls of a run for the ledger, from its audit: each once, charged as when it ran. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import * as AuditCalls from "../src/AuditCalls.ts"
import * as AuditLog from "../src/AuditLog.ts"
import * as AuditCallList from "../src/internal/audit/AuditCallList.ts"
import type { Prices } from "../src/Prices.ts"
import { ended, linesOf, opened, runId, started } from "./AuditLines.ts"
import * as Gateway from "./GatewaySocket.ts"

const callsOf = (text: string, prices?: Prices) => {
  const calls = AuditCallList.make(runId, prices)
  calls.push(Buffer.from(text))
  return calls.end()
}

const told = { inputTokens: 11, outputTokens: 5, costUsd: 0.25 }
const entries = [
  opened,
  started("a", { stream: true }),
  started("b", { costUsdMax: 7 }),
  ended("a", told),
  started("c", { api: "count_tokens" }),
  ended("c"),
  started("d"),
  ended("d", undefined, { status: 401 }),
  started("e")
]
const lines = linesOf(entries)

describe("AuditCalls", () => {
  it("reports ended calls as charged, open calls as reserved, and calls without a model as free", () => {
    const { calls, isWhole } = callsOf(lines.join(""))
    assert.isTrue(isWhole)
    const common = { model: "m", stream: false }
    assert.deepStrictEqual(calls, [
      {
        ...common,
        callId: "a",
        at: "1970-01-01T00:00:01.000Z",
        stream: true,
        outcome: "completed",
        usage: told
      },
      {
        ...common,
        callId: "b",
        at: "1970-01-01T00:00:02.000Z",
        usage: {
          inputTokens: 600,
          outputTokens: 50,
          costUsd: 7,
          priceSource: "reservation",
          estimated: true
        },
        reservedUsd: 7
      },
      {
        ...common,
        callId: "c",
        at: "1970-01-01T00:00:04.000Z",
        outcome: "completed",
        isFree: true,
        runsNoModel: true
      },
      { ...common, callId: "d", at: "1970-01-01T00:00:06.000Z", outcome: "completed", isFree: true },
      {
        ...common,
        callId: "e",
        at: "1970-01-01T00:00:08.000Z",
        usage: { inputTokens: 600, outputTokens: 50, estimated: true }
      }
    ])
  })

  it("names the key that the upstream issued for the run alone", () => {
    const keyHash = "a1".repeat(32)
    const keyed = { type: "run.keyed", credential: "run", keyHash } as const
    const shared = { type: "run.keyed", credential: "shared" } as const
    assert.strictEqual(callsOf(linesOf([opened, keyed, started("a")]).join("")).runKeyHash, keyHash)
    assert.notProperty(callsOf(linesOf([opened, shared, started("a")]).join("")), "runKeyHash")
  })

  it("charges an open call what was reserved for it, also if prices have changed", () => {
    const { calls } = callsOf(lines.join(""), { m: { input: 1_000_000, output: 2_000_000 } })
    assert.deepStrictEqual(
      calls.flatMap(({ callId, usage }) => (usage === undefined ? [] : [[callId, usage.costUsd]])),
      [
        ["a", 0.25],
        ["b", 7],
        // The audit names no reserved cost.
        ["e", 600 + 2 * 50]
      ]
    )
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
      const found = callsOf(text)
      assert.deepStrictEqual(
        found.calls.map(({ callId }) => callId),
        expected
      )
      assert.isTrue(found.isWhole)
      assert.deepStrictEqual(callsOf(text), found)
    },
    { arbitrary: { runs: 300, seed: "cuts-2" } }
  )

  it("trusts no entry from the first changed one on, and says so", () => {
    const all = [...lines]
    all[3] = all[3]!.replace(`"inputTokens":11`, `"inputTokens":12`)
    const { calls, isWhole } = callsOf(all.join(""))
    assert.isFalse(isWhole)
    assert.deepStrictEqual(
      calls.map(({ callId, outcome }) => [callId, outcome]),
      [
        ["a", undefined],
        ["b", undefined]
      ]
    )
  })

  it.live("reads the audit in a run's directory, and returns nothing if it has no audit", () =>
    Effect.gen(function* () {
      const directory = yield* Gateway.directory
      const read = AuditCalls.reader()
      assert.isUndefined(yield* read({ runId, directory }))
      const path = join(directory, AuditLog.relativePath)
      mkdirSync(dirname(path))
      writeFileSync(path, lines.join(""))
      assert.deepStrictEqual(yield* read({ runId, directory }), callsOf(lines.join("")))
    })
  )

  it.live("says that the audit is gone if the run's directory is, because there may have been calls", () =>
    Effect.gen(function* () {
      const directory = join(yield* Gateway.directory, "deleted")
      assert.deepStrictEqual(yield* AuditCalls.reader()({ runId, directory }), {
        calls: [],
        isWhole: false,
        isGone: true
      })
    })
  )
})
