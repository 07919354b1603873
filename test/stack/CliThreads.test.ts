/**
 * Commands that remember and change: a thread of the real Codex with `run --thread`, and a personality that the command
 * proposes at the double of GitHub, and that answers the thread after its merge.
 *
 * The model is a script. Each command is a process of its own, so all that a turn knows comes from disk and database.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, existsSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Codex from "../harness/agentTasks/Codex.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const token = "ghp_planted0threads0token"

const { agent, shell } = Codex.row

const modelName = "poets/large"

/** The command, with a configuration at the double of GitHub. Answers are JSON. */
const world = Effect.gen(function* () {
  const { run, stateDirectory } = yield* CliProcess.CliProcess
  const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
  const origin = yield* GitOrigin.acquire({ password: token })
  origin.extra = api.handle
  const made = yield* origin.make("acme/configuration", { "README.md": "the configuration\n" })
  const tokenFile = join(stateDirectory, "token")
  writeFileSync(tokenFile, `${token}\n`)
  chmodSync(tokenFile, 0o600)
  const ask = Effect.fnUntraced(function* (
    argv: ReadonlyArray<string>,
    options: CliProcess.Options = {},
    code = 0
  ) {
    const ended = yield* run([...argv, "-o", "json"], {
      ...options,
      env: {
        GITHUB_SERVER_URL: origin.url,
        GITHUB_TOKEN_FILE: tokenFile,
        COGNI_CONFIG_REPOSITORY: made.url,
        COGNI_CONFIG_MODELS: "poets/*",
        ...options.env
      }
    })
    const stdout = ended.stdout.toString("utf8")
    assert.strictEqual(ended.code, code, `${argv.join(" ")}: ${stdout}${ended.stderr}`)
    assert.notInclude(`${stdout}${ended.stderr}`, token)
    return stdout === "" ? undefined : JSON.parse(stdout)
  })
  /** Merges a proposed branch, as a person would at the forge. */
  const merge = ({ branch }: { readonly branch: string }) =>
    GitOrigin.git(made.path, "update-ref", "refs/heads/main", `refs/heads/${branch}`)
  return { api, ask, merge, path: made.path, stateDirectory }
})

type World = Effect.Success<typeof world>

/** Creates a skill and a personality, and changes it. Returns a checkout of what was merged. */
const proposed = Effect.fnUntraced(function* ({ api, ask, merge, path, stateDirectory }: World) {
  const skill = ["skills", "create", "rhyme", "--description", "Use it to rhyme.", "--instructions", "-"]
  yield* merge(yield* ask(skill, { stdin: "The secret of rhymes is zanzibar.\n" }))
  const create = "personalities create poet --agent codex --skill rhyme --instructions -".split(" ")
  const created = yield* ask(create, { stdin: "You answer in verse: quatrain-mark.\n" })
  assert.deepInclude(created, { ok: true, status: "proposed", existing: false })
  assert.match(created.branch, /^sandbox\/personality-poet-[0-9a-f]{16}$/u)
  assert.isDefined(yield* GitOrigin.branchAt(path, created.branch))
  yield* merge(created)
  // Proposals have the rules of `config check`, so also those of this host.
  const refused = yield* ask(["personalities", "edit", "poet", "--model", "prose/large"], {}, 65)
  assert.include(refused.error.message, "Expected a model that poets/* matches, got prose/large")
  const edit = ["personalities", "edit", "poet", "--model", modelName]
  const edited = yield* ask(edit)
  assert.deepStrictEqual(
    api.pulls.map(({ base, repository, title }) => [repository, base, title]),
    [
      ["acme/configuration", "main", "Add the skill rhyme"],
      ["acme/configuration", "main", "Add the personality poet"],
      ["acme/configuration", "main", "Change the personality poet"]
    ]
  )
  yield* merge(edited)
  assert.strictEqual((yield* ask(edit)).status, "unchanged")
  assert.deepStrictEqual(api.complaints, [])
  const directory = mkdtempSync(join(stateDirectory, "configuration-"))
  yield* GitOrigin.git(directory, "clone", "-q", path, ".")
  yield* ask(["config", "check", directory])
  return directory
})

const note =
  'echo harbour >note.txt; mkdir -p .cogni; echo \'{"version":1,"summary":"lighthouse"}\' >.cogni/index.json'

layer(CliProcess.layer, { excludeTestServices: true })("commands that remember", (it) => {
  it.effect("a thread continues from command to command, and a proposed personality answers it", () =>
    Effect.gen(function* () {
      const all = yield* world
      const { ask, stateDirectory } = all
      const configuration = yield* proposed(all)
      const calls = {
        "Write it": note,
        "Read it": "cat note.txt .cogni/index.json",
        "Look again": "ls -A; cat $CODEX_HOME/skills/rhyme/SKILL.md"
      }
      const model = yield* ScriptedModel.acquire(({ results, text }) => {
        // The newest: earlier requests may be part of the text.
        const [asked, line] = Object.entries(calls).findLast(([key]) => text.includes(key)) ?? []
        const before = asked === "Read it" ? 1 : 0
        return line === undefined || results.length > before
          ? { say: `Done: ${results.at(-1)}` }
          : { call: [shell(line)] }
      })
      const env = {
        COGNI_LLM_URL: model.url,
        COGNI_LLM_KEY: "sk-none",
        COGNI_GATEWAY_IMAGE: Images.gateway,
        [Images.variableOf(agent.image)]: Images.ofAgent(agent.image),
        COGNI_CONFIG_DIR: configuration
      }
      const turn = (prompt: string, ...flags: ReadonlyArray<string>) =>
        ask(["run", "--agent", agent.id, "--thread", "../port", ...flags, prompt], { env })
      const last = Effect.map(model.received, (received) => JSON.stringify(received.at(-1)?.body))

      yield* turn("Write it. The word is walrus.", "--model", modelName)
      const second = yield* turn("Read it. Which word was it?", "--model", modelName)
      for (const text of ["harbour", "lighthouse"]) assert.include(JSON.stringify(second), text)
      const continued = yield* last
      for (const text of ["The word is walrus", "Which word"]) assert.include(continued, text)
      assert.notInclude(continued, "Earlier messages:")

      const [thread, ...others] = yield* ask(["threads", "list"])
      assert.deepStrictEqual([thread.threadId, thread.turns, others], ["../port", 2, []])
      const directories = () =>
        existsSync(join(stateDirectory, "threads")) ? readdirSync(join(stateDirectory, "threads")) : []
      assert.lengthOf(directories(), 1)
      const shown = yield* ask(["threads", "show", thread.key])
      assert.deepStrictEqual(
        shown.turns.map(({ asked }: { readonly asked: string }) => asked),
        ["Write it. The word is walrus.", "Read it. Which word was it?"]
      )
      assert.strictEqual((yield* ask(["threads", "reset", thread.key])).status, "reset")
      assert.lengthOf(directories(), 0)

      // The model is that of the personality. The files are gone, and the history comes as text.
      const third = JSON.stringify(yield* turn("Look again.", "--personality", "poet"))
      assert.include(third, "zanzibar")
      assert.notInclude(third, "note.txt")
      const replayed = yield* last
      for (const text of ["quatrain-mark", "The word is walrus", "Use it to rhyme."])
        assert.include(replayed, text)
      assert.deepStrictEqual(
        new Set((yield* model.received).map(({ body }) => body["model"])),
        new Set([modelName])
      )
      assert.deepStrictEqual(yield* model.problems, [])

      assert.strictEqual((yield* ask(["threads", "remove", thread.key])).status, "removed")
      assert.lengthOf(directories(), 0)
      yield* ask(["threads", "show", thread.key], {}, 66)
    })
  )
})
