/** Personalities on the command line: what is listed, checked and refused. No test reaches an engine or a repository. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"

const files = {
  "personalities/poet.md": "---\nmodel: poets/large\nskills: [rhyme]\n---\n\nRhyme.\n",
  "personalities/fixer.md": "---\nagents: [codex]\n---\n\nFix.\n",
  "skills/rhyme/SKILL.md": "---\nname: rhyme\ndescription: Use it.\n---\n\nRhyme.\n"
}

const directory = (made: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = mkdtempSync(join(tmpdir(), "cogni-config-"))
      for (const [name, content] of Object.entries(made)) {
        mkdirSync(dirname(join(path, name)), { recursive: true })
        writeFileSync(join(path, name), content)
      }
      return path
    }),
    (path) => Effect.sync(() => rmSync(path, { recursive: true }))
  )

const cli = Effect.fnUntraced(function* (
  argv: ReadonlyArray<string>,
  environment: Readonly<Record<string, string>> = {}
) {
  const memory = Output.makeMemory()
  const code = yield* Cli.main({
    argv,
    environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all", ...environment }
  }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
  const { stderr, stdout } = memory.said
  return { code, stderr, stdout }
})

const repository = { COGNI_CONFIG_REPOSITORY: "https://git.invalid/acme/configuration" }

describe("personalities", () => {
  it.effect("are listed with their agents and models, and chosen by a run, whose model they decide", () =>
    Effect.gen(function* () {
      const environment = { COGNI_CONFIG_DIR: yield* directory(files) }
      const { stdout } = yield* cli(["personalities", "list", "-o", "json"], environment)
      const found: ReadonlyArray<Record<"agent" | "name", string> & { readonly model: string | null }> =
        JSON.parse(stdout)
      assert.deepStrictEqual(
        found.filter(({ name }) => ["poet", "fixer", "coder"].includes(name)),
        [
          { name: "fixer", agent: "codex", model: null },
          { name: "coder", agent: "openclaw", model: null },
          { name: "poet", agent: "openclaw", model: "poets/large" }
        ]
      )
      const unknown = yield* cli(
        ["run", "x", "--agent", "codex", "--personality", "poet", "--demo"],
        environment
      )
      assert.strictEqual(unknown.code, 64)
      assert.include(unknown.stderr, "choose one of fixer")
    })
  )

  it.effect("refuse every run if their directory is invalid, and config check lists the problems", () =>
    Effect.gen(function* () {
      const path = yield* directory({ ...files, "personalities/x.md": "---\nskills: [none]\n---\n\nx\n" })
      symlinkSync("/etc/passwd", join(path, "personalities/y.md"))
      const run = yield* cli(["run", "x", "--demo"], { COGNI_CONFIG_DIR: path })
      assert.strictEqual(run.code, 78)
      assert.include(run.stderr, `config check ${path}`)
      const checked = yield* cli(["config", "check", path])
      assert.strictEqual(checked.code, 65)
      assert.match(checked.stdout, /^personalities\/y\.md: .*\npersonalities\/x\.md: skills: .*got none\n$/u)
      const json = JSON.parse((yield* cli(["config", "check", path, "-o", "json"])).stdout)
      assert.deepStrictEqual([json.ok, json.problems.length], [false, 2])
      const good = yield* cli(["config", "check", yield* directory(files)])
      assert.deepStrictEqual([good.code, good.stdout.includes("2 personalities, 1 skill")], [0, true])
      assert.strictEqual((yield* cli(["config", "check", yield* directory({ "README.md": "" })])).code, 65)
    })
  )

  it.effect("name only models of the host, in a check and in a run", () =>
    Effect.gen(function* () {
      const path = yield* directory(files)
      for (const [models, code, words] of [
        ["poets/*, other", 0, "2 personalities"],
        ["prose/*", 65, "model: Expected a model that prose/* matches, got poets/large"],
        ["prose/*,,", 78, "COGNI_CONFIG_MODELS"]
      ] as const) {
        const checked = yield* cli(["config", "check", path], { COGNI_CONFIG_MODELS: models })
        assert.strictEqual(checked.code, code, checked.stderr)
        assert.include(`${checked.stdout}${checked.stderr}`, words)
      }
      const run = yield* cli(["run", "x", "--demo"], {
        COGNI_CONFIG_DIR: path,
        COGNI_CONFIG_MODELS: "prose/*"
      })
      assert.strictEqual(run.code, 78)
    })
  )

  it.effect.each([
    ["without a repository", "x", {}, 78, "COGNI_CONFIG_REPOSITORY"],
    ["of a repository of this host", "x", { COGNI_CONFIG_REPOSITORY: "/srv/x" }, 64, "https"],
    ["of a repository with a password", "x", { COGNI_CONFIG_REPOSITORY: "https://a:b@h/o/n" }, 64, "https"],
    ["of an invalid branch", "x", { ...repository, COGNI_CONFIG_BRANCH: "a..b" }, 64, "branch"]
  ] as const)("are not proposed %s", ([, text, environment, code, says]) =>
    Effect.gen(function* () {
      const path = yield* directory({ "text.md": text })
      const argv = ["personalities", "create", "poet", "--instructions", join(path, "text.md")]
      const refused = yield* cli(argv, environment)
      assert.strictEqual(refused.code, code, refused.stderr)
      assert.include(refused.stderr, says)
    })
  )

  it.effect("need instructions to be created, and a change to be edited", () =>
    Effect.gen(function* () {
      for (const [argv, says] of [
        [["personalities", "create", "poet"], "--instructions"],
        [["personalities", "edit", "poet"], "nothing is changed"],
        [["skills", "edit", "rhyme"], "nothing is changed"]
      ] as const) {
        const { code, stderr } = yield* cli(argv, repository)
        assert.strictEqual(code, 64)
        assert.include(stderr, says)
      }
    })
  )
})
