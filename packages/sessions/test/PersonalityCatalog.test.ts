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
        agentTools: { openclaw: ["read", "exec"], codex: [] },
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
        skills: {}
      })
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
      "openclaw, codex"
    ],
    [
      "a tool that its agent cannot deny",
      { "personalities/x.md": personality("agents: [codex]\ntools_denied: [exec]\n") },
      "codex cannot deny"
    ],
    ["a name in upper case", { "personalities/Poet.md": personality() }, "NAME.md"],
    ["a name that looks like another", { "personalities/сoder.md": personality() }, "NAME.md"],
    [
      "the name of a built-in one",
      { "personalities/coder.md": personality() },
      "coder.md: Expected another name"
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
