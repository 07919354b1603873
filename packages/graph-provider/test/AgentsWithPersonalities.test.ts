/** Claude Code and Codex with personalities: what the host gives a run, and what stays from an earlier turn. */
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import { claudeCode } from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import * as AgentsWithPersonalities from "@cogni/sandbox-graph-provider/agents/AgentsWithPersonalities"
import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const task = {
  messages: [{ role: "user" as const, content: "Rhyme." }] as const,
  model: "m",
  runId: "run-1",
  workingDirectory: "/workspace",
  runtimeSecondsMax: 60
}

const skills = { rhyme: "the skill", other: "another" }

const lead = AgentsWithPersonalities.claudeCode(
  {
    lead: {
      instructions: "Lead.",
      model: "big",
      effort: "high",
      toolsDenied: ["Write", "Bash"],
      skills: ["rhyme"],
      subagents: ["critic", "plain"]
    },
    plain: {}
  },
  {
    skills,
    subagents: {
      critic: { description: "Use it.", instructions: "Criticise.", tools: ["Read"] },
      plain: { description: "Plain.", instructions: "Be plain." },
      unused: { description: "x", instructions: "y" }
    }
  }
)

const after = (argv: ReadonlyArray<string>, flag: string) => argv[argv.indexOf(flag) + 1]

describe("Claude Code with personalities", () => {
  it("gets its subagents in a file of the host, and its settings as options", () => {
    const argv = lead.argv({ ...task, personality: "lead" })
    assert.strictEqual(after(argv, "--effort"), "high")
    assert.strictEqual(after(argv, "--agents"), "/cogni/subagents.json")
    assert.match(after(argv, "--disallowed-tools")!, /,WebSearch,Write,Bash$/u)
    const inputs = lead.inputs({ ...task, personality: "lead" })
    assert.deepStrictEqual(
      inputs.map(({ name }) => name),
      ["prompt.md", "skill-rhyme.md", "subagents.json"]
    )
    assert.deepStrictEqual(JSON.parse(inputs.at(-1)!.content as string), {
      critic: { description: "Use it.", prompt: "Criticise.", model: "inherit", tools: ["Read"] },
      plain: { description: "Plain.", prompt: "Be plain.", model: "inherit" }
    })
    assert.deepStrictEqual(lead.capabilities.personalityModels, { lead: "big" })
  })

  it("is as before without a personality, and with an empty one", () => {
    for (const [agent, bare] of [
      [lead, claudeCode],
      [AgentsWithPersonalities.codex({ plain: {} }), codex]
    ] as const)
      for (const personality of [undefined, "plain", "constructor"]) {
        assert.deepStrictEqual(agent.argv({ ...task, personality }), bare.argv(task))
        assert.deepStrictEqual(agent.inputs({ ...task, personality }), bare.inputs(task))
      }
  })

  it("is not made with a skill or a subagent that is missing", () => {
    assert.throws(
      () => AgentsWithPersonalities.claudeCode({ x: { subagents: ["constructor"] } }),
      /constructor/u
    )
    assert.throws(() => AgentsWithPersonalities.codex({ x: { skills: ["rhyme"] } }), /rhyme/u)
  })
})

describe("Codex with personalities", () => {
  it("gets an effort as a setting", () => {
    const agent = AgentsWithPersonalities.codex({ quick: { effort: "low" } })
    assert.include(agent.argv({ ...task, personality: "quick" }), 'model_reasoning_effort="low"')
    assert.notInclude(codex.argv(task).join(" "), "effort")
  })
})

describe("skills in a thread", () => {
  /** Runs the beginning of a command line in a directory, without the agent. */
  const placed = (agent: Agent, directory: string, personality: string) => {
    const session = { id: "s", isNew: false, directory }
    const argv = agent.argv({ ...task, personality, session })
    const end = argv.lastIndexOf("/usr/local/bin/cogni-stdin")
    const inputs = join(directory, "inputs")
    mkdirSync(inputs, { recursive: true })
    for (const { content, name } of agent.inputs({ ...task, personality, session }))
      writeFileSync(join(inputs, name), content)
    const [program, ...rest] = argv.slice(0, end).map((text) => text.replaceAll('"/cogni/', `"${inputs}/`))
    execFileSync(program!, [...rest, "true"])
  }

  it("are in the agent's session, where it looks, and what the agent wrote there is removed", () => {
    const thinker = AgentsWithPersonalities.codex({ poet: { skills: ["rhyme"] }, plain: {} }, { skills })
    for (const agent of [lead, thinker]) {
      const directory = mkdtempSync(join(tmpdir(), "cogni-session-"))
      try {
        const hostile = join(directory, "skills/hostile/SKILL.md")
        mkdirSync(join(directory, "skills/hostile"), { recursive: true })
        writeFileSync(hostile, "obey")
        placed(agent, directory, agent === lead ? "lead" : "poet")
        assert.strictEqual(readFileSync(join(directory, "skills/rhyme/SKILL.md"), "utf8"), "the skill")
        assert.isFalse(existsSync(hostile))
        placed(agent, directory, "plain")
        assert.isFalse(existsSync(join(directory, "skills")))
      } finally {
        rmSync(directory, { recursive: true })
      }
    }
  })
})
