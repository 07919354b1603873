import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as AuditUsage from "../src/internal/audit/AuditUsage.ts"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as SubagentShare from "../src/internal/policy/SubagentShare.ts"
import * as Gateway from "./GatewaySocket.ts"

const defaults = { concurrentCallsMax: 100, requestsPerSecondMax: 1000 }
const prices = { m: { input: 1_000_000, output: 2_000_000 } }

const made = (budget: Partial<LlmBudget>, runtimeSecondsMax = 100) => {
  const whole: LlmBudget = { onExhausted: "refuse", ...budget }
  const ledger = Budget.make(whole, { defaults, prices })
  return SubagentShare.make(ledger, { budget: whole, runtimeSecondsMax, prices })
}

const call = (isSubagent: boolean, more: Partial<Budget.Call> = {}): SubagentShare.RunCall => ({
  isSubagent,
  model: "m",
  requestBytes: 1,
  inputTokensMax: 1,
  outputTokensMax: 1,
  ...more
})

const end = { mayHaveRun: true, responseBytes: 1, usage: { inputTokens: 1, outputTokens: 1 } }

/** Makes a call that ends. Returns why it was refused, or `undefined`. */
const tried = (of: SubagentShare.RunLedger, isSubagent: boolean, nowMillis = 0) => {
  const begun = of.begin(call(isSubagent), nowMillis)
  if ("exhaustion" in begun) return begun
  of.end(begun, end)
  return undefined
}

describe("SubagentShare", () => {
  it("refuses subagents beyond their share, and leaves the rest to the main agent", () => {
    const of = made({ callsMax: 10, subagentShareMax: 0.3 })
    for (let index = 0; index < 3; index++) assert.isUndefined(tried(of, true))
    const refusal = tried(of, true)
    assert.deepInclude(refusal, {
      isOfSubagents: true,
      final: true,
      exhaustion: { budget: "calls", limit: 3, used: 3 }
    })
    assert.include(refusal?.detail, "finish without them")
    for (let index = 0; index < 7; index++) assert.isUndefined(tried(of, false))
    assert.isUndefined(of.exhausted(), "a spent share does not end the run's budget")
    const last = tried(of, false)
    assert.deepInclude(last, { final: true, exhaustion: { budget: "calls", limit: 10, used: 10 } })
    assert.isUndefined(last?.isOfSubagents)
    assert.strictEqual(tried(of, true)?.isOfSubagents, undefined, "the run's own budget matters more")
  })

  it("allows one call of a subagent, also if the share is less", () => {
    const of = made({ callsMax: 3, subagentShareMax: 0.3 })
    assert.isUndefined(tried(of, true))
    assert.deepInclude(tried(of, true)?.exhaustion, { limit: 1, used: 1 })
  })

  it.each([1, 0.5])(
    "refuses with the budget of the run if that is spent too, with a share of %d",
    (share) => {
      const of = made({ callsMax: 2, subagentShareMax: share, onExhausted: "stop" })
      for (let index = 0; index < 2; index++) assert.isUndefined(tried(of, index < 2 * share))
      const refusal = tried(of, true)
      assert.isUndefined(refusal?.isOfSubagents)
      assert.deepInclude(refusal, { final: true, exhaustion: { budget: "calls", limit: 2, used: 2 } })
      assert.isDefined(of.exhausted(), "the run stops")
    }
  )

  it("does not limit the main agent, which may use the whole budget alone", () => {
    const of = made({ callsMax: 4, subagentShareMax: 0.5 })
    for (let index = 0; index < 4; index++) assert.isUndefined(tried(of, false))
    assert.isUndefined(tried(of, true)?.isOfSubagents)
  })

  it("caps an answer of a subagent at what is left of the share", () => {
    const of = made({ outputTokensMax: 1000, subagentShareMax: 0.1 })
    assert.deepStrictEqual(of.answerCaps(["m"], false), { max: 1000, absent: 1000 })
    assert.deepStrictEqual(of.answerCaps(["m"], true), { max: 100, absent: 100 })
    const open = of.begin(call(true, { outputTokensMax: 100 }), 0)
    assert.isFalse("exhaustion" in open)
    assert.deepInclude(of.begin(call(true), 0), { isOfSubagents: true, final: false })
    assert.isFalse("exhaustion" in of.begin(call(false), 0))
  })

  it("counts time from a call of a subagent until the next one of the main agent", () => {
    const of = made({ subagentShareMax: 0.1 }, 100)
    const at = (isSubagent: boolean, seconds: number) => tried(of, isSubagent, seconds * 1000)
    assert.isUndefined(at(false, 0))
    // The main agent worked alone for a minute, which no subagent used.
    assert.isUndefined(at(true, 60))
    assert.isUndefined(at(true, 66))
    assert.isUndefined(at(false, 67))
    assert.isUndefined(at(true, 90))
    assert.isUndefined(at(true, 92.9))
    assert.deepInclude(at(true, 93), {
      isOfSubagents: true,
      final: true,
      exhaustion: { budget: "runtime_seconds", limit: 10, used: 10 }
    })
    assert.isUndefined(at(false, 94))
  })

  it("counts the time of a call that is open while the main agent calls", () => {
    const of = made({ subagentShareMax: 0.1 }, 100)
    const open = of.begin(call(true), 0)
    assert.isUndefined(tried(of, false, 1000))
    assert.isUndefined(tried(of, false, 9000))
    if (!("exhaustion" in open)) of.end(open, end)
    assert.strictEqual(tried(of, true, 10_000)?.exhaustion.budget, "runtime_seconds")
  })

  it.prop(
    "never lets subagents exceed their share, or all calls the budget, in any order of calls",
    [
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })),
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 })),
      Schema.Array(Schema.Struct({ isSubagent: Schema.Boolean, ends: Schema.Boolean })).check(
        Schema.isMaxLength(120)
      )
    ],
    ([callsMax, percent, schedule]) => {
      const of = made({ callsMax, subagentShareMax: percent / 100 })
      const passed = { main: 0, sub: 0 }
      const open: Array<Budget.Ticket> = []
      for (const { ends, isSubagent } of schedule) {
        const begun = of.begin(call(isSubagent), 0)
        const isShareFree = passed.sub < Math.max(1, Math.floor((callsMax * percent) / 100 + 1e-9))
        const isFree = passed.main + passed.sub < callsMax
        assert.strictEqual("exhaustion" in begun, !(isFree && (!isSubagent || isShareFree)))
        if ("exhaustion" in begun) continue
        passed[isSubagent ? "sub" : "main"] += 1
        open.push(begun)
        if (ends) of.end(open.shift()!, end)
      }
    }
  )

  it("knows the headers of agents, whatever their case and value", () => {
    for (const name of ["X-Claude-Code-Agent-Id", "x-parent-session-id", "X-Cogni-Subagent"])
      assert.isTrue(SubagentShare.marksSubagent([[name, ""]]))
    assert.isFalse(SubagentShare.marksSubagent([["x-claude-code-session-id", "s"]]))
  })

  it.live("tells the agent, the audit and the run once that a share is spent, and the run goes on", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [
          { _tag: "Answer", body: JSON.stringify({ usage: { prompt_tokens: 7, completion_tokens: 3 } }) }
        ],
        llm: { budget: { callsMax: 4, subagentShareMax: 0.25, onExhausted: "stop" } }
      })
      const mark = { headers: ["X-Claude-Code-Agent-Id: planted-id"] }
      const send = (options: Parameters<typeof Gateway.http>[1] = {}) =>
        gateway.send(Gateway.http(Gateway.chat(), options))
      assert.strictEqual((yield* send(mark)).status, 200)
      const refused = yield* send(mark)
      assert.strictEqual(refused.status, 402)
      assert.strictEqual(refused.headers.get("x-should-retry"), "false")
      assert.include(refused.body, "share of the subagents")
      assert.strictEqual((yield* send(mark)).status, 402)
      assert.strictEqual((yield* send()).status, 200)
      const exhaustion = { budget: "calls", limit: 1, used: 1 } as const
      assert.deepStrictEqual(gateway.observed, [{ _tag: "SubagentShareSpent", exhaustion }])
      const traffic = yield* gateway.endpoint.finish
      assert.isUndefined(traffic.exhausted)
      assert.deepStrictEqual(traffic.subagentsExhausted, exhaustion)
      const audit = yield* gateway.audit
      assert.strictEqual(audit.split('"type":"subagents.exhausted"').length, 2)
      const replayed = AuditUsage.make(gateway.runId)
      replayed.push(new TextEncoder().encode(audit))
      assert.deepStrictEqual(replayed.end().subagentsExhausted, exhaustion)
      assert.strictEqual(audit.split('"subagent":true').length, 2)
      assert.notInclude(audit, "planted-id")
      const sent = (yield* gateway.upstream.received).flatMap(({ headers }) => headers)
      assert.isFalse(sent.some(([, value]) => value === "planted-id"))
    })
  )
})
