/** Claude Code and Codex with personalities: what the host gives a run, and what stays from an earlier turn. */
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import { claudeCode } from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import * as AgentsWithPersonalities from "@cogni/sandbox-graph-provider/agents/AgentsWithPersonalities"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

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
  it("asks for its loaded code only if its command is the one that it was loaded for", () => {
    const terms = {
      runId: RunId.make("run-of-personality"),
      image: "memory/agent",
      llm: { model: "m", identity: { billingAccountId: "acct", attempt: 0 } }
    } as const
    const preload = ["load-claude-code"] as const
    const preloadOf = (more: Partial<AgentRun.AgentRequest>) =>
      AgentRun.specOf({ ...lead, preload }, { messages: task.messages, hasRepository: false, ...more }, terms)
        .preload
    assert.deepStrictEqual(preloadOf({}), preload)
    assert.deepStrictEqual(preloadOf({ personality: "plain" }), preload)
    assert.isUndefined(preloadOf({ personality: "lead" }), "skills")
    assert.isUndefined(preloadOf({ hasRepository: true }), "a clone")
    assert.isUndefined(
      preloadOf({ session: { id: "s1", directory: "/workspace/.session", isNew: true } }),
      "a thread"
    )
  })

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

/** An agent is not root, whom no permission stops. */
const isRoot = process.getuid?.() === 0

describe("skills in a thread", () => {
  /** Runs the beginning of a command line in a directory, without the agent. */
  const placed = (agent: Agent, directory: string, personality?: string, root = directory) => {
    const session = { id: "s", isNew: false, directory }
    const argv = agent.argv({ ...task, personality, session })
    const end = argv.lastIndexOf("/usr/local/bin/cogni-stdin")
    const inputs = join(root, "inputs")
    mkdirSync(inputs, { recursive: true })
    for (const { content, name } of agent.inputs({ ...task, personality, session }))
      writeFileSync(join(inputs, name), content)
    const [program, ...rest] = argv.slice(0, end).map((text) => text.replaceAll('"/cogni/', `"${inputs}/`))
    if (isRoot) spawnSync("chown", ["-R", "1000:1000", root])
    return spawnSync(program!, [...rest, "true"], {
      encoding: "utf8",
      ...(isRoot ? { uid: 1000, gid: 1000 } : {})
    })
  }

  const inDirectory = (use: (directory: string) => void) => {
    const root = mkdtempSync(join(tmpdir(), "cogni-session-"))
    try {
      use(root)
    } finally {
      rmSync(root, { recursive: true })
    }
  }

  it("are in the agent's session, where it looks, and what the agent wrote there is removed", () => {
    const thinker = AgentsWithPersonalities.codex({ poet: { skills: ["rhyme"] }, plain: {} }, { skills })
    for (const agent of [lead, thinker])
      inDirectory((directory) => {
        const hostile = join(directory, "skills/hostile/SKILL.md")
        mkdirSync(join(directory, "skills/hostile"), { recursive: true })
        writeFileSync(hostile, "obey")
        assert.strictEqual(placed(agent, directory, agent === lead ? "lead" : "poet").status, 0)
        assert.strictEqual(readFileSync(join(directory, "skills/rhyme/SKILL.md"), "utf8"), "the skill")
        assert.isFalse(existsSync(hostile))
        for (const personality of ["plain", undefined]) {
          mkdirSync(join(directory, "skills/hostile"), { recursive: true })
          placed(agent, directory, personality)
          assert.isFalse(existsSync(join(directory, "skills")))
        }
      })
  })

  it("are alone: what else configured the agent in an earlier turn is removed, and its transcript stays", () => {
    for (const [agent, names, transcript] of [
      [lead, ["settings.json", "agents/plain.md", "commands/x.md", "CLAUDE.md"], "projects/x.jsonl"],
      [codex, ["config.toml", "AGENTS.md", "prompts/x.md", "rules/x.rules"], "sessions/x.jsonl"]
    ] as const)
      for (const personality of [undefined, "plain"])
        inDirectory((directory) => {
          for (const name of [...names, transcript]) {
            mkdirSync(dirname(join(directory, name)), { recursive: true })
            writeFileSync(join(directory, name), "{}")
          }
          assert.strictEqual(placed(agent, directory, personality).status, 0)
          assert.deepStrictEqual(
            [...names, transcript].filter((name) => existsSync(join(directory, name))),
            [transcript]
          )
        })
  })

  it("are placed, and a new session is made, in directories that the agent protected from its own changes", () => {
    inDirectory((root) => {
      const sessions = join(root, ".cogni/sessions")
      const directory = join(sessions, "one")
      mkdirSync(join(directory, "skills/hostile"), { recursive: true })
      for (const path of [directory, sessions, dirname(sessions)]) chmodSync(path, 0o555)
      const first = placed(lead, directory, "lead", root)
      assert.strictEqual(first.status, 0, first.stderr)
      assert.isFalse(existsSync(join(directory, "skills/hostile")))
      chmodSync(sessions, 0o555)
      const second = placed(lead, join(sessions, "two"), undefined, root)
      assert.strictEqual(second.status, 0, second.stderr)
    })
  })

  it("say what to do if the agent put a file in place of the directory of sessions", () => {
    inDirectory((root) => {
      writeFileSync(join(root, "sessions"), "")
      const { status, stderr } = placed(lead, join(root, "sessions/one"), undefined, root)
      assert.strictEqual(status, 125)
      assert.include(stderr, "Reset the thread")
    })
  })
})
