/** The decision about a call of a host tool: never outside grant ∩ request, never an `ask` without its approval. */
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const { decide, mayRun } = ToolAccess

const read: ToolAccess.ToolClass = { name: "acme__find", effect: "read_only" }
const write: ToolAccess.ToolClass = { name: "acme__pay", effect: "external_side_effect" }
const tools = [read.name, write.name]

describe("ToolAccess", () => {
  it("opens the tools of a request without rules, and no others", () => {
    assert.strictEqual(decide({ tools }, write), "open")
    assert.strictEqual(decide({ tools: [read.name] }, write), "closed")
    assert.strictEqual(decide({ tools: [] }, read), "closed")
  })

  it("closes a tool that no rule covers", () => {
    assert.strictEqual(decide({ tools, rules: [] }, read), "closed")
    assert.strictEqual(decide({ tools, rules: [{ tool: "other__*", access: "open" }] }, read), "closed")
  })

  it("opens no tool by a rule that asks", () => {
    assert.strictEqual(decide({ tools, rules: [{ tool: "**", access: "ask" }] }, write), "closed")
    const opened: ToolAccess.ToolRule = { tool: "acme__*", effect: "read_only", access: "open" }
    const asks: ToolAccess.ToolRule = { tool: "acme__*", access: "ask" }
    assert.strictEqual(decide({ tools, rules: [opened, asks] }, read), "ask")
    assert.strictEqual(decide({ tools, rules: [opened, asks] }, write), "closed")
  })

  it("takes the strictest rule in any order", () => {
    const rules: ReadonlyArray<ToolAccess.ToolRule> = [
      { tool: "**", access: "open" },
      { tool: "acme__*", effect: "external_side_effect", access: "ask" },
      { tool: "acme__drop", access: "closed" }
    ]
    for (const order of [rules, rules.toReversed()]) {
      assert.strictEqual(decide({ tools, rules: order }, read), "open")
      assert.strictEqual(decide({ tools, rules: order }, write), "ask")
      const drop = { name: "acme__drop", effect: "read_only" } as const
      assert.strictEqual(decide({ tools: [...tools, drop.name], rules: order }, drop), "closed")
    }
  })

  it("counts a tool without a known effect class as the strictest", () => {
    for (const effect of [undefined, "", "read", 7])
      assert.strictEqual(ToolAccess.effectOf({ effect }), "external_side_effect")
    assert.strictEqual(ToolAccess.effectOf({ effect: "read_only" }), "read_only")
  })

  it("refuses a rule that can cover no tool, because of its characters", () => {
    const isRule = Schema.is(ToolAccess.ToolRule)
    for (const tool of [
      "acme__pay:external",
      "acme__*:write",
      "acme.pay",
      "Acme__pay",
      "acme__pay ",
      "",
      "a/b"
    ])
      assert.isFalse(isRule({ tool, access: "ask" }), tool)
    for (const tool of ["**", "acme__*", "acme__pay2"]) assert.isTrue(isRule({ tool, access: "ask" }), tool)
  })

  it("finds rules that were meant to restrict something and cover no tool", () => {
    const rules: ReadonlyArray<ToolAccess.ToolRule> = [
      { tool: "other__*", access: "open" },
      { tool: "acme__*", access: "ask" },
      { tool: "acme__*", effect: "state_change", access: "closed" },
      { tool: "acme__bay", access: "ask" }
    ]
    assert.deepStrictEqual(ToolAccess.withoutTool(rules, [read, write]).map(ToolAccess.ruleText), [
      "closed acme__*:state_change",
      "ask acme__bay"
    ])
  })

  const Names = Schema.Literals(["a__x", "a__y", "b__x", "b__xy"])
  const Rules = Schema.Array(
    Schema.Struct({
      tool: Schema.Literals(["a__x", "a__*", "*__x", "**", "b__x*", "a__", "*"]),
      effect: Schema.optionalKey(ToolAccess.ToolEffect),
      access: ToolAccess.Access
    })
  ).check(Schema.isMaxLength(4))
  const Request = Schema.Struct({
    tools: Schema.Array(Names).check(Schema.isMaxLength(3)),
    rules: Schema.optionalKey(Rules)
  })
  const Given = Schema.Struct({
    status: Schema.Literals(["pending", "approved", "denied", "expired", "cancelled"]),
    runId: Schema.Literals(["run-1", "run-2"]),
    requestId: Schema.Literals(["r1", "r2"]),
    tool: Names,
    argumentsDigest: Schema.Literals(["d1", "d2"])
  })
  const Tool = Schema.Struct({ name: Names, effect: ToolAccess.ToolEffect })

  /** Matches as the implementation must, in another way. */
  const isLike = (pattern: string, name: string) =>
    new RegExp(`^${pattern.replaceAll(/\*+/gu, "[^/]*")}$`, "u").test(name)

  it.prop(
    "runs nothing outside grant ∩ request, and no `ask` without an approval of exactly that call",
    [Request, Tool, Schema.Array(Given).check(Schema.isMaxLength(2)), Given],
    ([request, tool, approvals, { argumentsDigest, requestId, runId }]) => {
      const call = { argumentsDigest, requestId, runId, tool: tool.name }
      const access = decide(request, tool)
      const covering = request.rules?.filter(
        (rule) => isLike(rule.tool, tool.name) && (rule.effect === undefined || rule.effect === tool.effect)
      )
      const isGranted = covering === undefined || covering.some((rule) => rule.access === "open")
      const asks = covering?.some((rule) => rule.access === "ask") === true
      const isClosed = covering?.some((rule) => rule.access === "closed") === true
      for (const approval of [undefined, ...approvals]) {
        if (!mayRun(access, call, approval)) continue
        assert.include(request.tools, tool.name)
        assert.isTrue(isGranted && !isClosed)
        if (!asks) continue
        assert.strictEqual(approval?.status, "approved")
        assert.deepStrictEqual({ ...approval, status: "approved" }, { ...call, status: "approved" })
      }
      if (request.tools.includes(tool.name) && isGranted && !isClosed)
        assert.isTrue(mayRun(access, call, { ...call, status: "approved" }), "what is granted can run")
      if (!asks) assert.strictEqual(access, mayRun(access, call, undefined) ? "open" : "closed")
    },
    { arbitrary: { runs: 10_000, seed: "tool-access-1" } }
  )

  it.prop(
    "names no tool that every effect class closes",
    [Rules, Names],
    ([rules, name]) => {
      const any = ToolAccess.ToolEffect.literals.some(
        (effect) => decide({ tools: [name], rules }, { name, effect }) !== "closed"
      )
      assert.strictEqual(ToolAccess.mayName(rules, name), any)
    },
    { arbitrary: { runs: 1000, seed: "tool-access-2" } }
  )
})
