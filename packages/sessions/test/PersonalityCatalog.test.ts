/** A directory with personalities and skills: accepted or rejected as a whole, and never left by a link. */
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import * as PersonalityCatalog from "@cogni/sandbox-sessions/config/PersonalityCatalog"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

const personality = (settings = "", text = "Rhyme.") => `---\n${settings}---\n\n${text}\n`

const skill = (name: string) => personality(`name: ${name}\ndescription: Use it.\n`)

const whole = {
  "personalities/poet.md": personality("model: m\nskills: [rhyme]\ntools_denied: [exec]\n"),
  "skills/rhyme/SKILL.md": skill("rhyme"),
  "README.md": "hello\n",
  "personalities/.gitkeep": ""
}

const directory = (files: Readonly<Record<string, string>>, links: Readonly<Record<string, string>> = {}) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = realpathSync(mkdtempSync(join(tmpdir(), "cogni-catalog-")))
      for (const [name, content] of Object.entries(files)) {
        mkdirSync(dirname(join(path, name)), { recursive: true })
        writeFileSync(join(path, name), content)
      }
      for (const [name, target] of Object.entries(links)) {
        mkdirSync(dirname(join(path, name)), { recursive: true })
        symlinkSync(target, join(path, name))
      }
      return path
    }),
    (path) => Effect.sync(() => rmSync(path, { recursive: true }))
  )

const read = (...made: Parameters<typeof directory>) =>
  Effect.flatMap(directory(...made), (path) =>
    Effect.result(
      PersonalityCatalog.read(WorkspaceFiles.make({ workspace: path, alias: path }), {
        agents: {
          openclaw: { toolsDenied: ["read", "exec"] },
          codex: { efforts: ["low", "high"] },
          "claude-code": {
            toolsDenied: ["Bash"],
            efforts: ["max"],
            subagentTools: ["Read", "Bash"],
            subagentNamesTaken: ["plan"]
          }
        },
        models: ["m", "poets/*"],
        namesTaken: ["coder"]
      })
    )
  )

const linesOf = (found: Effect.Success<ReturnType<typeof read>>): string =>
  Result.isFailure(found) && found.failure._tag === "CatalogInvalid" ? found.failure.lines.join("\n") : "none"

describe("a catalog", () => {
  it.effect("has the personalities and skills of its directory; an empty directory has none", () =>
    Effect.gen(function* () {
      const { personalities, skills } = Result.getOrThrow(yield* read(whole))
      assert.deepStrictEqual(Object.keys(personalities), ["poet"])
      assert.deepStrictEqual(skills, { rhyme: { description: "Use it.", instructions: "Rhyme." } })
      assert.deepStrictEqual(Result.getOrThrow(yield* read({ "README.md": "" })), {
        personalities: {},
        skills: {},
        subagents: {}
      })
    })
  )

  it.effect("has what Claude Code and Codex have of their own", () =>
    Effect.gen(function* () {
      const { personalities, subagents } = Result.getOrThrow(
        yield* read({
          "personalities/lead.md": personality(
            "agents: [claude-code]\nmodel: poets/x\nsubagents: [critic]\neffort: max\ntools_denied: [Bash]\n"
          ),
          "personalities/quick.md": personality("agents: [codex]\neffort: low\n"),
          "subagents/critic.md": personality("description: Use it.\ntools: [Read]\n")
        })
      )
      assert.deepStrictEqual(subagents, {
        critic: { description: "Use it.", tools: ["Read"], instructions: "Rhyme." }
      })
      assert.deepInclude(personalities["lead"], { subagents: ["critic"], effort: "max" })
      assert.deepInclude(personalities["quick"], { effort: "low" })
    })
  )

  it.effect.each([
    ["a skill that does not exist", { "personalities/x.md": personality("skills: [none]\n") }, "got none"],
    [
      "a tool that does not exist",
      { "personalities/x.md": personality("tools_denied: [rm]\n") },
      "read, exec"
    ],
    [
      "an agent that does not exist",
      { "personalities/x.md": personality("agents: [nano]\n") },
      "openclaw, codex, claude-code"
    ],
    [
      "a tool that its agent cannot deny",
      { "personalities/x.md": personality("agents: [codex]\ntools_denied: [exec]\n") },
      "codex cannot deny"
    ],
    [
      "an effort that its agent does not have",
      { "personalities/x.md": personality("agents: [codex]\neffort: max\n") },
      "effort: Expected one of low, high, got max"
    ],
    [
      "an effort of an agent that has none",
      { "personalities/x.md": personality("effort: low\n") },
      "openclaw has none here"
    ],
    [
      "subagents of an agent that starts none",
      {
        "personalities/x.md": personality("agents: [codex]\nsubagents: [y]\n"),
        "subagents/y.md": personality("description: d\n")
      },
      "codex starts none here, got y"
    ],
    [
      "a subagent that does not exist",
      { "personalities/x.md": personality("agents: [claude-code]\nsubagents: [none]\n") },
      "Expected the name of a subagent in subagents, got none"
    ],
    [
      "a subagent with a tool that does not exist",
      {
        "personalities/x.md": personality("agents: [claude-code]\nsubagents: [y]\n"),
        "subagents/y.md": personality("description: d\ntools: [WebFetch]\n")
      },
      "Read, Bash, got WebFetch, in y"
    ],
    ["a subagent without a description", { "subagents/y.md": personality() }, "subagents/y.md"],
    [
      "a subagent with a model",
      { "subagents/y.md": personality("description: d\nmodel: m\n") },
      "subagents/y.md"
    ],
    ["a subagent named as no file is", { "subagents/Y.md": personality("description: d\n") }, "NAME.md"],
    [
      "a model that is not one of the host's",
      { "personalities/x.md": personality("model: prose/x\n") },
      "model: Expected a model that m or poets/* matches, got prose/x"
    ],
    [
      "such a model of a tier",
      {
        "cogni.yaml":
          "agent_configs: { a: { model_tier: complex } }\nrouting: { default_agent: a }\nmodels: { complex: prose/x }\n"
      },
      "models.complex: Expected a model that"
    ],
    ["a name in upper case", { "personalities/Poet.md": personality() }, "NAME.md"],
    ["a name that looks like another", { "personalities/сoder.md": personality() }, "NAME.md"],
    [
      "the name of a built-in one",
      { "personalities/coder.md": personality() },
      "coder.md: Expected another name"
    ],
    [
      "the name of a subagent that an agent has of its own",
      { "subagents/plan.md": personality("description: d\n") },
      "plan.md: Expected another name"
    ],
    ["another kind of file", { "personalities/x.txt": "" }, "NAME.md"],
    ["a directory of personalities", { "personalities/x/y.md": "" }, "NAME.md"],
    ["a file instead of the directory", { personalities: "" }, "Expected a directory"],
    [
      "more than the text of a skill",
      { "skills/x/SKILL.md": skill("x"), "skills/x/run.sh": "" },
      "nothing else"
    ],
    ["a skill of another name", { "skills/x/SKILL.md": skill("y") }, "the name of its directory"],
    [
      "a text that is not UTF-8",
      { "personalities/x.md": "---\n---\nx".padEnd(200_000, "x") },
      "at most 65536"
    ],
    ["an invalid configuration of sessions", { "cogni.yaml": "sandbox: 1\n" }, "cogni.yaml:"]
  ] as const)("is refused with %s", ([, files, says]) =>
    Effect.gen(function* () {
      assert.include(linesOf(yield* read({ ...files })), says)
    })
  )

  it.effect("follows no link, not even to a valid file", () =>
    Effect.gen(function* () {
      const outside = yield* directory(whole)
      for (const [name, target] of [
        ["personalities/poet.md", join(outside, "personalities/poet.md")],
        ["personalities", join(outside, "personalities")],
        ["skills/rhyme", join(outside, "skills/rhyme")],
        ["skills/rhyme/SKILL.md", join(outside, "skills/rhyme/SKILL.md")],
        ["subagents", join(outside, "skills")],
        ["subagents/critic.md", join(outside, "personalities/poet.md")],
        ["cogni.yaml", "/etc/passwd"]
      ] as const) {
        const said = linesOf(yield* read({}, { [name]: target }))
        assert.match(said, /Expected (?:a|one) (?:regular file|directory)/u, name)
      }
    })
  )

  it.effect("reports at most 64 entries, and every problem with its line", () =>
    Effect.gen(function* () {
      const many = Object.fromEntries(
        Array.from({ length: 70 }, (_, index) => [`personalities/p${index}.md`, personality()])
      )
      assert.include(linesOf(yield* read(many)), "at most 64 entries")
      const said = linesOf(yield* read({ "personalities/x.md": personality("model: m\nmodle: n\n") }))
      assert.match(said, /^personalities\/x\.md:3:1 modle:/u)
    })
  )
})
