/** The spec of an admitted request: parts from the grant, parts from the request, and limits of the host. */
import { SandboxSpec } from "@cogni/sandbox-core/SandboxSpec"
import { type LlmBudget } from "@cogni/sandbox-core/SpecFields"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as GraphSpec from "../src/internal/GraphSpec.ts"
import { context, grantOf, request } from "./GraphWorld.ts"

const options: GraphSpec.SettledOptions = {
  enabled: true,
  canaries: "off",
  imageOf: (image) => `registry/${image}:1`,
  offer: { models: [] },
  runtimeSecondsMax: 900,
  workspaceOf: () => ({ type: "temporary" })
}

/** An agent whose arguments show its task. */
const parrot: Agent = {
  ...minimal,
  id: AgentId.make("parrot"),
  argv: ({ model, personality, runtimeSecondsMax, workingDirectory }) => [
    model,
    personality ?? "nobody",
    String(runtimeSecondsMax),
    workingDirectory
  ],
  limits: { runtimeSecondsMax: 300 }
}

const make = (
  over: Parameters<typeof request>[0] = {},
  settled: Partial<GraphSpec.SettledOptions> = {},
  budget?: LlmBudget
) => GraphSpec.make(parrot, { grant: grantOf(), budget }, request(over), context, { ...options, ...settled })

describe("GraphSpec", () => {
  it("takes the account and the user from the grant, whatever the request says", () => {
    const caller = { ...request().caller, billingAccountId: "other", userId: "mallory", sessionId: "s-1" }
    assert.deepStrictEqual(make({ caller }).llm?.identity, {
      billingAccountId: "acct",
      virtualKeyId: request().caller.virtualKeyId,
      userId: "user",
      attempt: 2,
      graphId: "sandbox:agent",
      agentId: "parrot",
      existingTraceId: "trace-1",
      sessionId: "s-1",
      traceUserId: "mallory"
    })
  })

  it("takes the request's time limit, else the agent's, at most the host's, and tells the agent", () => {
    for (const [asked, seconds] of [
      [{}, 300],
      [{ runtimeSecondsMax: 20 }, 20],
      [{ runtimeSecondsMax: 86_400 }, 900]
    ] as const) {
      const spec = make(asked)
      assert.strictEqual(spec.limits?.runtimeSecondsMax, seconds)
      assert.strictEqual(spec.argv[2], String(seconds))
    }
  })

  it("takes tools, personality and canaries as given, the budget as admitted, and omits the rest", () => {
    const budget = { callsMax: 3, onExhausted: "stop" } as const
    const asked = make({ toolIds: ["core__search"], personality: "sage" }, { canaries: "stop" }, budget)
    assert.containSubset(asked, { tools: ["core__search"], llm: { budget }, canaries: "stop" })
    assert.strictEqual(asked.argv[1], "sage")
    const plain = make()
    for (const absent of ["tools", "canaries"]) assert.notProperty(plain, absent)
    assert.notProperty(plain.llm, "budget")
    assert.strictEqual(Schema.decodeSync(SandboxSpec)(plain).canaries, "off")
  })

  it("passes the rules of a grant on with the tools that a request names", () => {
    const grant = {
      ...grantOf(),
      permissions: { tools: ["core__*"], toolRules: [{ tool: "**", access: "ask" as const }] }
    }
    const specOf = (toolIds: ReadonlyArray<string>) =>
      GraphSpec.make(parrot, { grant, budget: undefined }, request({ toolIds }), context, options)
    assert.deepStrictEqual(specOf(["core__search"]).toolRules, [
      { tool: "core__*", access: "open" },
      { tool: "**", access: "ask" }
    ])
    assert.notProperty(specOf([]), "toolRules")
  })

  it("works in the host's workspace, or in the repository if the request names one", () => {
    const workspaceOf = () => ({ type: "directory", path: "/srv/one" }) as const
    const spec = make({}, { workspaceOf })
    assert.deepStrictEqual(spec.workspace, { type: "directory", path: "/srv/one" })
    assert.deepStrictEqual([spec.image, spec.argv[3]], ["registry/runtime:1", "/workspace"])
    assert.strictEqual(make({ repository: { url: "https://example.org/x/y" } }).argv[3], "/workspace/repo")
  })
})
