/** The entries of a run: what is charged, from which source, and in which state. */
import { assert, describe, it } from "@effect/vitest"
import type { AuditedCall } from "@cogni/sandbox-core/AuditedCall"
import { LedgerEntry as Entry } from "@cogni/sandbox-ledger"
import { Schema } from "effect"
import * as LedgerEntries from "../src/LedgerEntries.ts"
import { runOf } from "../src/testing/LedgerSamples.ts"

const run = runOf("run-00000001", { userId: "u", agentId: "pi" })
const now = "2026-01-31T11:00:00.000Z"
const call: AuditedCall = {
  callId: "a",
  at: "2026-01-31T10:00:01.000Z",
  model: "gpt-5-upstream",
  stream: true,
  outcome: "completed",
  usage: { inputTokens: 10, outputTokens: 2, costUsd: 0.5 }
}

const entryOf = (changes: Partial<AuditedCall>) =>
  LedgerEntries.ofAudit(run, { calls: [{ ...call, ...changes }], isWhole: true }, now)[0]!

/** A call as a proxy that reads no bodies lists it. */
const listed = {
  at: call.at,
  requestId: "r",
  callId: "",
  method: "POST",
  path: "/",
  status: 200,
  requestBytes: 1,
  responseBytes: 1,
  durationMs: 1,
  completed: true
}

const isEntry = Schema.is(Entry.LedgerEntry)

describe("LedgerEntries", () => {
  it("names the run, its payer, and the model at the upstream", () => {
    assert.deepStrictEqual(entryOf({ reservedUsd: 2 }), {
      runId: run.runId,
      attempt: 0,
      usageUnitId: "a",
      revision: 0,
      at: call.at,
      recordedAt: now,
      billingAccountId: "account-1",
      userId: "u",
      agentId: "pi",
      upstream: "litellm",
      model: "gpt-5-upstream",
      inputTokens: 10,
      outputTokens: 2,
      costUsd: 0.5,
      currency: "USD",
      priceSource: "upstream",
      reservedUsd: 2,
      streamed: true,
      outcome: "completed",
      state: "pending"
    })
  })

  it.each([
    ["2026-01-31T23:59:59.999Z", "2026-01-31T23:59:59.999Z"],
    ["2026-02-01T00:59:59.9999+01:00", "2026-01-31T23:59:59.999Z"],
    ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"],
    ["+275760-09-13T00:00:00.000Z", run.openedAt],
    ["-000001-01-01T00:00:00.000Z", run.openedAt],
    ["yesterday", run.openedAt]
  ])("have for a call that began at %s the time %s", (at, expected) => {
    const entry = entryOf({ at })
    assert.strictEqual(entry.at, expected)
    assert.isTrue(isEntry(entry))
  })

  it("names the run's own key at the upstream apart from the key of the caller", () => {
    const runKeyHash = "a1".repeat(32)
    const granted = { ...run, virtualKeyId: "grant-1" }
    const [entry] = LedgerEntries.ofAudit(granted, { calls: [call], isWhole: true, runKeyHash }, now)
    assert.deepInclude(entry, { virtualKeyId: "grant-1", runKeyHash })
    const [lost] = LedgerEntries.ofAudit(granted, { calls: [], isWhole: false, runKeyHash }, now)
    assert.deepInclude(lost, { usageUnitId: "unknown", runKeyHash })
  })

  it.each<[string, Partial<AuditedCall>, Partial<Entry.LedgerEntry>]>([
    [
      "a cost of the host's prices",
      { usage: { inputTokens: 1, outputTokens: 1, costUsd: 1, priceSource: "prices" } },
      { priceSource: "prices", costUsd: 1, state: "pending" }
    ],
    [
      "no cost and no price",
      { usage: { inputTokens: 1, outputTokens: 1 } },
      { priceSource: "none", state: "pending", reason: "no_price" }
    ],
    [
      "a reservation, if tokens are missing",
      { usage: { inputTokens: 1, outputTokens: 9, costUsd: 1, priceSource: "reservation", estimated: true } },
      { priceSource: "reservation", costUsd: 1, state: "estimated", reason: "usage_missing" }
    ],
    [
      "reserved tokens without a cost, if there is no price either",
      { usage: { inputTokens: 1, outputTokens: 9, estimated: true } },
      { priceSource: "none", state: "estimated", reason: "usage_missing" }
    ],
    [
      "a reservation, if the process died during the call",
      {
        outcome: undefined,
        usage: { inputTokens: 1, outputTokens: 9, costUsd: 1, priceSource: "reservation", estimated: true }
      },
      { priceSource: "reservation", costUsd: 1, state: "estimated", reason: "call_open" }
    ],
    [
      "nothing, if no model ran",
      { usage: undefined, isFree: true },
      { priceSource: "free", costUsd: 0, state: "pending", reason: "not_run" }
    ],
    [
      "the upstream's cost of a refusal",
      { usage: { costUsd: 0.5 }, isFree: true },
      { priceSource: "upstream", costUsd: 0.5, state: "pending" }
    ],
    [
      "an unknown cost, if the proxy does not read answers",
      { usage: undefined },
      { priceSource: "none", state: "pending", reason: "not_told" }
    ]
  ])("charges %s", (_, changes, expected) => {
    const entry = entryOf(changes)
    assert.deepInclude(entry, expected)
    assert.strictEqual("costUsd" in entry, "costUsd" in expected, "unknown is absent, never 0")
    assert.isTrue(isEntry(entry))
  })

  it("has an entry of unknown cost for calls that cannot be counted", () => {
    const traffic = { proxy: "nginx", upstream: "u", unreadableRows: 0, injectedHeaders: [] }
    for (const [entries, reason] of [
      [LedgerEntries.ofAudit(run, { calls: [], isWhole: false }, now), "audit_broken"],
      [LedgerEntries.ofAudit(run, { calls: [], isWhole: false, isGone: true }, now), "audit_missing"],
      [LedgerEntries.ofNothing(run, now), "audit_missing"],
      [LedgerEntries.ofTraffic(run, { ...traffic, calls: [], callsTotal: 1 }, now), "not_listed"]
    ] as const) {
      assert.strictEqual(entries.length, 1)
      assert.deepInclude(entries[0], { usageUnitId: "unknown", priceSource: "none", reason })
      assert.isTrue(entries.every((entry) => isEntry(entry)))
    }
    const units = LedgerEntries.ofTraffic(
      run,
      { ...traffic, calls: [listed, listed, { ...listed, callId: "unknown" }], callsTotal: 3 },
      now
    )
    assert.deepStrictEqual(
      units.map(({ usageUnitId }) => usageUnitId),
      ["r", "call-1", "call-2"]
    )
  })

  it("records no request that a proxy without bodies ended itself, and nothing for one that runs no model", () => {
    const { callId: _, ...sent } = listed
    const entries = LedgerEntries.ofTraffic(
      run,
      {
        calls: [
          { ...sent, requestId: "model", path: "/v1/messages" },
          { ...sent, requestId: "refused", outcome: "refused" },
          { ...sent, requestId: "aborted", outcome: "client_aborted" },
          { ...sent, requestId: "list", method: "GET", path: "/v1/models" },
          { ...sent, requestId: "count", path: "/v1/messages/count_tokens?beta=true" }
        ],
        callsTotal: 5,
        unreadableRows: 0
      },
      now
    )
    assert.deepStrictEqual(
      entries.map(({ costUsd, priceSource, usageUnitId }) => [usageUnitId, priceSource, costUsd]),
      [
        ["model", "none", undefined],
        ["list", "free", 0],
        ["count", "free", 0]
      ]
    )
  })

  it("corrects an entry only with the end of a call that was open", () => {
    const open = entryOf({ outcome: undefined, usage: { inputTokens: 1, outputTokens: 1, estimated: true } })
    const end = entryOf({})
    assert.deepStrictEqual(LedgerEntries.corrections([open], [end]), [{ ...end, revision: 1 }])
    assert.deepStrictEqual(LedgerEntries.corrections([end], [open]), [], "an end is never taken back")
    assert.deepStrictEqual(LedgerEntries.corrections([open, { ...end, revision: 1 }], [end]), [])
    assert.deepStrictEqual(LedgerEntries.corrections([open], [open]), [])
    const row = { ...open, revision: 1, state: "matched" as const, reason: "row_found" }
    assert.deepStrictEqual(
      LedgerEntries.corrections([open, row], [end]),
      [],
      "the upstream's rows count more"
    )
  })
})
