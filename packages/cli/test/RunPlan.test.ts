/** The spec and the egress that flags and environment select. The demo upstream is never a fallback. */
import { assert, describe, it } from "@effect/vitest"
import { absent } from "./AbsentSettings.ts"
import { Refusal } from "../src/Failure.ts"
import * as RunPlan from "../src/RunPlan.ts"
import type { Settings } from "../src/Settings.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import { builtIn } from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { Effect, Redacted, Result } from "effect"

const key = Redacted.make("sk-planted")
const configured: Settings["Service"] = {
  ...absent,
  upstream: { _tag: "Configured", url: "http://127.0.0.1:4000", key },
  model: "m1"
}
const runId = RunId.make("run-000000000001")
const prompt: RunPlan.RunSubject = {
  _tag: "Prompt",
  agent: minimal,
  prompt: "hello"
}
const command: RunPlan.RunSubject = { _tag: "Command", argv: ["ls", "-l"] }

const planned = (subject: RunPlan.RunSubject, over: RunPlan.RunFlags, settings: Settings["Service"]) => {
  const made = RunPlan.make(subject, runId, over, settings)
  return Result.isSuccess(made) ? made.success : assert.fail(made.failure.message)
}
const refused = (
  subject: RunPlan.RunSubject,
  over: RunPlan.RunFlags,
  settings: Settings["Service"]
): Refusal => {
  const made = RunPlan.make(subject, runId, over, settings)
  return Result.isFailure(made) ? made.failure : assert.fail("it was planned")
}

describe("--stop-when-spent", () => {
  it.each([prompt, command])("is refused without a budget, at which it would end the run", (subject) => {
    const { exit, message } = refused(subject, { stopWhenSpent: true, demo: true }, absent)
    assert.strictEqual(exit, "usage")
    assert.include(message, "--stop-when-spent needs a budget. Set --max-calls")
  })

  it("ends a run at any of its budgets", () => {
    const { spec } = planned(prompt, { stopWhenSpent: true, callsMax: 3, demo: true }, absent)
    assert.deepStrictEqual(spec.llm?.budget, { callsMax: 3, onExhausted: "stop" })
  })
})

describe("--subagent-share", () => {
  it("is a part of the budget, and refused for an agent that may not mark its subagents", () => {
    const { spec } = planned(prompt, { subagentShareMax: 0.3, callsMax: 10, demo: true }, absent)
    assert.deepStrictEqual(spec.llm?.budget, { callsMax: 10, subagentShareMax: 0.3 })
    const { subagents: _, ...capabilities } = minimal.capabilities
    const unmarked = { ...prompt, agent: { ...minimal, capabilities } }
    const { exit, message } = refused(unmarked, { subagentShareMax: 0.3, demo: true }, absent)
    assert.strictEqual(exit, "usage")
    assert.include(message, "does not say whether it marks")
  })

  it("is refused for a command without a model, and bounds one with a model", () => {
    for (const flags of [{}, { noModel: true }]) {
      const { exit, message } = refused(command, { subagentShareMax: 0.3, ...flags }, absent)
      assert.strictEqual(exit, "usage")
      assert.include(message, "--subagent-share has no effect without a model")
    }
    const { spec } = planned(command, { subagentShareMax: 0.3, demo: true }, absent)
    assert.deepStrictEqual(spec.llm?.budget, { subagentShareMax: 0.3 })
  })
})

describe("--ask-tool", () => {
  it("lets calls of its tools wait, and leaves those of --tool open", () => {
    const flags = { tools: ["acme__find", "acme__pay"], askTools: ["acme__pay", "acme__drop"], demo: true }
    const { tools, toolRules } = planned(prompt, flags, absent).spec
    assert.deepStrictEqual(tools, ["acme__find", "acme__pay", "acme__drop"])
    assert.deepStrictEqual(toolRules, [
      { tool: "acme__find", access: "open" },
      { tool: "acme__pay", access: "open" },
      { tool: "acme__drop", access: "open" },
      { tool: "acme__pay", access: "ask" },
      { tool: "acme__drop", access: "ask" }
    ])
    assert.notProperty(planned(prompt, { tools: ["acme__find"], demo: true }, absent).spec, "toolRules")
  })
})

describe("the egress of an agent", () => {
  it("is refused without an upstream, and has no fallback", () => {
    const { exit, message } = refused(prompt, {}, absent)
    assert.strictEqual(exit, "configuration")
    for (const word of [
      "COGNI_LLM_URL",
      "COGNI_LLM_KEY_FILE",
      "COGNI_LLM_KEY)",
      "--demo",
      "cogni-sandbox demo"
    ])
      assert.include(message, word)
  })

  it("is refused if no account is named that pays, except for the demo", () => {
    const unnamed = { ...configured, isAccountNamed: false }
    for (const subject of [prompt, command]) {
      const { exit, message } = refused(subject, { model: "m" }, unnamed)
      assert.strictEqual(exit, "configuration")
      assert.include(message, "COGNI_BILLING_ACCOUNT")
    }
    assert.strictEqual(planned(prompt, { demo: true }, unnamed).wayOut._tag, "Demo")
    assert.strictEqual(planned(command, { noModel: true }, unnamed).wayOut._tag, "None")
  })

  it("is refused for a demo with a limit of cost, which no answer of a demo has", () => {
    for (const settings of [absent, configured]) {
      const { exit, message } = refused(prompt, { demo: true, costUsdMax: 1 }, settings)
      assert.strictEqual(exit, "usage")
      assert.include(message, "--max-cost has no effect with --demo")
    }
    assert.strictEqual(planned(prompt, { demo: true, callsMax: 1 }, absent).wayOut._tag, "Demo")
  })

  it("is the demo upstream only on request, with a note", () => {
    const plan = planned(prompt, { demo: true }, absent)
    assert.deepStrictEqual(plan.wayOut, { _tag: "Demo", model: "demo" })
    assert.include(plan.note ?? "", "no model is asked")
    assert.include(planned(prompt, { demo: true }, configured).note ?? "", "although COGNI_LLM_URL is set")
  })

  it("is the configured upstream, with the model of the flag, or else of the environment", () => {
    assert.deepStrictEqual(planned(prompt, {}, configured).wayOut, {
      _tag: "Upstream",
      model: "m1",
      url: "http://127.0.0.1:4000",
      key,
      options: { profile: {} }
    })
    assert.propertyVal(planned(prompt, { model: "m2" }, configured).wayOut, "model", "m2")
    assert.include(refused(prompt, {}, { ...configured, model: undefined }).message, "COGNI_LLM_MODEL")
  })

  it("is refused if its profile does not fit its URL, also with nginx", () => {
    const upstream = { _tag: "Configured", url: "https://api.openai.com", key } as const
    const { exit, message } = refused(
      prompt,
      {},
      { ...configured, upstream, upstreamOptions: Result.succeed({ profile: { name: "litellm" } }) }
    )
    assert.strictEqual(exit, "configuration")
    assert.include(message, "the profile of COGNI_LLM_URL is litellm, but api.openai.com is a public API")
    assert.include(message, "Choose the profile openai")
  })

  it.each([
    ["COGNI_LLM_URL", "COGNI_LLM_KEY"],
    ["COGNI_LLM_URL", "COGNI_LLM_KEY_FILE"],
    ["COGNI_LLM_KEY", "COGNI_LLM_URL"]
  ] as const)("is refused if the configuration lacks %s", (missing, present) => {
    const upstream = { _tag: "Incomplete", missing, present } as const
    const { exit, message } = refused(prompt, {}, { ...absent, upstream })
    assert.strictEqual(exit, "configuration")
    const absentNames = missing === "COGNI_LLM_KEY" ? "COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY)" : missing
    assert.include(message, `${present} is set and ${absentNames} is not`)
  })

  it("is refused with the error of an unreadable key, only if a model is needed", () => {
    const refusal = new Refusal({ exit: "configuration", detail: "it is open", remedy: "Close it" })
    const settings: Settings["Service"] = { ...absent, upstream: { _tag: "Refused", refusal } }
    assert.strictEqual(refused(prompt, {}, settings), refusal)
    assert.strictEqual(refused(command, {}, settings), refusal)
    assert.strictEqual(planned(command, { noModel: true }, settings).wayOut._tag, "None")
    assert.strictEqual(planned(prompt, { demo: true }, settings).wayOut._tag, "Demo")
  })

  it.each(["127.0.0.1:4000", "ftp://x", "http://key@host/", "http://host/?a=b"])(
    "cannot be the upstream %s",
    (url) => {
      const { exit, message } = refused(
        prompt,
        {},
        { ...configured, upstream: { _tag: "Configured", url, key } }
      )
      assert.strictEqual(exit, "configuration")
      assert.include(message, "COGNI_LLM_URL")
      assert.notInclude(message, "key@")
    }
  )

  it("is required, so --no-model is refused", () => {
    assert.strictEqual(refused(prompt, { noModel: true }, configured).exit, "usage")
  })
})

describe("the egress of a command", () => {
  it("is absent without an upstream", () => {
    const plan = planned(command, {}, absent)
    assert.deepStrictEqual(plan.wayOut, { _tag: "None" })
    assert.isUndefined(plan.spec.llm)
    assert.isUndefined(plan.note)
  })

  it("is the upstream if one is configured with a model, and absent with --no-model", () => {
    assert.strictEqual(planned(command, {}, configured).wayOut._tag, "Upstream")
    assert.strictEqual(planned(command, { noModel: true }, configured).wayOut._tag, "None")
  })

  it("is absent, with a note, if an upstream is configured without a model", () => {
    const plan = planned(command, {}, { ...configured, model: undefined })
    assert.strictEqual(plan.wayOut._tag, "None")
    assert.include(plan.note ?? "", "--model")
  })

  it("is refused with an incomplete configuration, unless --no-model is given", () => {
    const half: Settings["Service"] = {
      ...absent,
      upstream: { _tag: "Incomplete", missing: "COGNI_LLM_KEY", present: "COGNI_LLM_URL" }
    }
    assert.strictEqual(refused(command, {}, half).exit, "configuration")
    assert.strictEqual(planned(command, { noModel: true }, half).wayOut._tag, "None")
  })

  it("is refused for --model without an upstream, and for --no-model with --model or --demo", () => {
    assert.strictEqual(refused(command, { model: "m" }, absent).exit, "configuration")
    assert.strictEqual(refused(command, { model: "m", noModel: true }, configured).exit, "usage")
    assert.strictEqual(refused(command, { demo: true, noModel: true }, configured).exit, "usage")
  })
})

describe("the spec", () => {
  it.effect("has the values of the flags, and the library's defaults for the rest", () =>
    Effect.gen(function* () {
      const over = {
        workspace: "/project",
        timeoutSeconds: 120,
        graceSeconds: 0,
        memoryBytes: 2 ** 29,
        diskBytes: 2 ** 20,
        outputBytes: 4096,
        cpus: 0.5,
        processes: 32,
        env: [["A", "1"]] as const,
        image: "other:1"
      }
      const spec = yield* SpecDecoder.decode(planned(command, over, absent).spec)
      assert.deepStrictEqual(spec.argv, ["ls", "-l"])
      assert.deepStrictEqual(spec.env, { A: "1" })
      assert.deepStrictEqual(spec.workspace, { type: "directory", path: "/project" })
      assert.strictEqual(spec.image, "other:1")
      assert.strictEqual(spec.runId, runId)
      assert.deepInclude(spec.limits, {
        runtimeSecondsMax: 120,
        stopGraceSecondsMax: 0,
        memoryBytesMax: 2 ** 29,
        workspaceBytesMax: 2 ** 20,
        outputBytesMax: 4096,
        cpusMax: 0.5,
        processesMax: 32,
        filesOpenMax: 4096
      })
    })
  )

  it.effect("has an agent's prompt as a file, and its account and graph ID from the host", () =>
    Effect.gen(function* () {
      const spec = yield* SpecDecoder.decode(planned(prompt, {}, configured).spec)
      assert.deepStrictEqual(spec.argv, ["cogni-agent"])
      assert.strictEqual(spec.image, "cogni/runtime:1")
      assert.deepStrictEqual(spec.inputs, [
        { name: "messages.json", content: '[{"role":"user","content":"hello"}]' }
      ])
      assert.deepStrictEqual(spec.llm, {
        model: "m1",
        models: {},
        unknownFields: "drop",
        caller: "sandbox",
        identity: { billingAccountId: "acct", attempt: 0, graphId: "sandbox:agent", agentId: "agent" }
      })
    })
  )

  it.each(builtIn)("is the one of the graph of $id, in that agent's image", (agent) => {
    const { spec } = planned({ _tag: "Prompt", agent, prompt: "hello" }, {}, configured)
    const { inputs, llm, ...rest } = spec
    const asked = { messages: [{ role: "user", content: "hello" }], hasRepository: false } as const
    const own = AgentRun.specOf(agent, asked, { runId, image: configured.imageOf(agent.image), llm: llm! })
    assert.containSubset(rest, { argv: own.argv, image: own.image, runId })
    assert.deepStrictEqual([rest.env, inputs], [own.env, own.inputs])
    assert.strictEqual(llm?.identity.graphId, `sandbox:${agent.id}`)
  })

  it("contains no key", () => {
    assert.notInclude(JSON.stringify(planned(prompt, {}, configured)), "sk-planted")
  })
})
