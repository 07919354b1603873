/**
 * A personality from a request to a run: proposed over HTTP, opened as a pull request at the double of GitHub, merged
 * there, deployed, and answered by the real OpenClaw. Hostile repositories get a typed refusal, and nothing is pushed.
 */
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as ConfigurationProposals from "@cogni/sandbox-server/ConfigurationProposals"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as ConfiguredAgents from "../../packages/cli/src/ConfiguredAgents.ts"
import { serve } from "../../packages/server/test/ServerWorld.ts"
import * as AgentWorld from "../harness/agentTasks/AgentWorld.ts"
import * as ClaudeCode from "../harness/agentTasks/ClaudeCode.ts"
import * as Codex from "../harness/agentTasks/Codex.ts"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"

const token = "ghp_planted0evolution0token"

class Stage extends Context.Service<
  Stage,
  { readonly origin: GitOrigin.GitOrigin; readonly api: GitHubDouble.GitHubDouble }
>()("test/EvolutionStage") {
  static readonly layer = Layer.effect(
    Stage,
    Effect.gen(function* () {
      const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
      const origin = yield* GitOrigin.acquire({ password: token })
      origin.extra = api.handle
      return { origin, api }
    })
  )
}

const layers = Layer.unwrap(
  Effect.gen(function* () {
    const { origin } = yield* Stage
    const tokens = [
      {
        variable: "GITHUB_TOKEN",
        server: origin.url,
        username: "x-access-token",
        token: Redacted.make(token)
      }
    ]
    const broker = ConnectionBroker.layer({
      sources: CredentialSources.make(tokens),
      hostConnections: CredentialSources.hostConnections(tokens)
    }).pipe(Layer.provide([ConnectionStore.layerMemory, SecretBox.layerNone]))
    const credentials = Layer.succeedContext(
      yield* Layer.build(Layer.provide(BrokerCredentials.layer, broker))
    )
    return RelayHarness.layer(
      {},
      credentials,
      Layer.provide(Forge.layer({ forges: { [origin.url]: "github" } }), credentials)
    )
  })
).pipe(Layer.provideMerge(Stage.layer))

/** A server for the configuration in a new repository, and a caller that may propose changes of it. */
const world = Effect.fnUntraced(function* (name: string, files: Readonly<Record<string, string>> = {}) {
  const { origin } = yield* Stage
  const relay = yield* GitRelay
  const made = yield* origin.make(`acme/${name}`, { "README.md": "the configuration\n", ...files })
  const server = yield* serve({
    proposals: Layer.provide(
      ConfigurationProposals.layer({ ...ConfiguredAgents.options, repository: made.url }),
      Layer.succeed(GitRelay, relay)
    )
  })
  const { send } = yield* server.caller({
    permissions: { propose: true, repositories: [`${origin.url}/acme/*`] }
  })
  const branches = Effect.map(GitOrigin.refsOf(made.path), (refs) => refs.split("\n").length)
  return { ...made, send, branches }
})

/** Merges a branch, as a person would at the forge. */
const merge = (path: string, branch: string) =>
  GitOrigin.git(path, "update-ref", "refs/heads/main", `refs/heads/${branch}`)

/** Commits on top of a branch, and pushes it to a repository (default: of the same name, to the same). */
const commit = Effect.fnUntraced(function* (
  path: string,
  change: (work: string) => void,
  { branch, to }: { readonly branch: string; readonly to: string } = { branch: "main", to: path }
) {
  const work = mkdtempSync(join(tmpdir(), "cogni-work-"))
  yield* Effect.gen(function* () {
    yield* GitOrigin.git(work, "clone", "-q", "--branch", branch, path, ".")
    change(work)
    yield* GitOrigin.git(work, "add", "--all")
    yield* GitOrigin.git(work, "commit", "-q", "-m", "change")
    yield* GitOrigin.git(work, "push", "-q", to, branch)
  }).pipe(Effect.ensuring(Effect.sync(() => rmSync(work, { recursive: true, force: true }))))
})

/** A checkout of `main`, as an operator deploys it. */
const deployed = (path: string) =>
  Effect.acquireRelease(
    Effect.tap(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-deployed-"))),
      (directory) => GitOrigin.git(directory, "clone", "-q", path, ".")
    ),
    (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
  )

/** An agent with the personalities of a catalog. */
const agentNamed = (id: string, catalog: Parameters<typeof ConfiguredAgents.agentsOf>[0]) =>
  ConfiguredAgents.agentsOf(catalog).findLast((agent) => agent.id === id)!

const rhyme = {
  name: "rhyme",
  description: "Use it to make two lines rhyme.",
  instructions: "The secret of rhymes is zanzibar."
}

const poet = {
  name: "poet",
  displayName: "Poet",
  model: "poets/large",
  skills: ["rhyme"],
  toolsDenied: ["write"],
  instructions: "You answer in verse: quatrain-mark."
}

it.layer(layers, { excludeTestServices: true })("evolution", (it) => {
  it.effect(
    "a personality and its skill become pull requests, are merged, and answer a run of OpenClaw",
    () =>
      Effect.gen(function* () {
        const { api } = yield* Stage
        const { path, send } = yield* world("configuration")
        // A personality whose skill does not exist would break the configuration.
        const early = yield* send("/api/v1/personalities", poet)
        assert.deepStrictEqual([early.status, early.body.error.reason], [409, "ConfigurationInvalid"])
        assert.include(early.body.error.message, "got rhyme")
        const skill = yield* send("/api/v1/skills", rhyme)
        assert.strictEqual(skill.status, 200, JSON.stringify(skill.body))
        yield* merge(path, skill.body.branch)
        const proposed = yield* send("/api/v1/personalities", poet)
        assert.deepStrictEqual(
          [proposed.status, proposed.body.status],
          [200, "proposed"],
          JSON.stringify(proposed.body)
        )
        assert.match(proposed.body.branch, /^sandbox\/personality-poet-[0-9a-f]{16}$/u)
        const pull = api.pulls.find(({ head }) => head === proposed.body.branch)
        assert.deepStrictEqual(
          [pull?.repository, pull?.base, pull?.title],
          ["acme/configuration", "main", "Add the personality poet"]
        )
        const pulls = api.pulls.length
        // The same request again, also after the base has moved.
        const again = yield* send("/api/v1/personalities", poet)
        assert.deepStrictEqual([again.body.branch, again.body.existing], [proposed.body.branch, true])
        yield* commit(path, (work) => writeFileSync(join(work, "other.txt"), "other\n"))
        const later = yield* send("/api/v1/personalities", poet)
        assert.deepStrictEqual([later.body.branch, later.body.existing], [proposed.body.branch, true])
        assert.strictEqual(api.pulls.length, pulls)
        yield* merge(path, proposed.body.branch)
        const merged = yield* send("/api/v1/personalities", poet)
        assert.deepStrictEqual([merged.status, merged.body.status], [200, "unchanged"])
        const other = yield* send("/api/v1/personalities", { ...poet, instructions: "Prose." })
        assert.deepStrictEqual([other.status, other.body.error.reason], [409, "NameTaken"])
        assert.deepStrictEqual(api.complaints, [])

        const agent = agentNamed("openclaw", yield* ConfiguredAgents.read(yield* deployed(path)))
        const workspace = yield* AgentWorld.workspace({ "a.txt": "a\n" })
        const worked = yield* AgentWorld.work(
          agent,
          ({ index, results }) =>
            index === 0
              ? { call: [{ name: "read", args: { path: "/home/agent/skills/rhyme/SKILL.md" } }] }
              : { say: results.at(-1)?.includes("zanzibar") === true ? "zanzibar it is" : "no skill" },
          workspace,
          { messages: [{ role: "user", content: "Rhyme." }], model: "poets/large", personality: "poet" }
        )
        assert.isTrue(worked.final.ok, JSON.stringify([worked.final, yield* worked.upstream.problems]))
        assert.strictEqual(worked.final.content, "zanzibar it is")
        const first = (yield* worked.upstream.received).find(({ tools }) => tools.length > 0)
        const body = JSON.stringify(first?.body)
        for (const text of ["quatrain-mark", rhyme.description, "skills/rhyme/SKILL.md"])
          assert.include(body, text)
        assert.strictEqual(first?.body["model"], "poets/large")
        assert.notInclude(first?.tools ?? [], "write")
        assert.include(first?.tools ?? [], "read")
      })
  )

  it.effect("a branch that has more than the change gets no pull request", () =>
    Effect.gen(function* () {
      const { api } = yield* Stage
      const first = yield* world("first")
      const { branch } = (yield* first.send("/api/v1/skills", rhyme)).body
      const second = yield* world("second")
      yield* commit(first.path, (work) => writeFileSync(join(work, "more.yml"), "on: push\n"), {
        branch,
        to: second.path
      })
      const answer = yield* second.send("/api/v1/skills", rhyme)
      assert.deepStrictEqual([answer.status, answer.body.error?.reason], [409, "BranchTaken"])
      assert.isFalse(api.pulls.some(({ repository }) => repository === "acme/second"))
    })
  )

  for (const { agent, model } of [ClaudeCode.row, Codex.rowOfCodeMode]) {
    it.effect(`${agent.name} gets the instructions and the skills of its personality, and no other's`, () =>
      Effect.gen(function* () {
        const { description, instructions } = rhyme
        const catalog = {
          personalities: {
            poet: {
              agents: [agent.id],
              skills: ["rhyme"],
              ...(agent.id === "claude-code" ? { toolsDenied: ["Task"] } : { effort: "high" }),
              instructions: "quatrain-mark"
            }
          },
          skills: {
            rhyme: { description, instructions },
            other: { description: "not-mine", instructions: "x" }
          },
          subagents: {}
        }
        const worked = yield* AgentWorld.work(
          agentNamed(agent.id, catalog),
          () => ({ say: "done" }),
          yield* AgentWorld.workspace(),
          { messages: [{ role: "user", content: "Rhyme." }], model: model ?? "scripted", personality: "poet" }
        )
        assert.isTrue(worked.final.ok, JSON.stringify([worked.final, yield* worked.upstream.problems]))
        const received = yield* worked.upstream.received
        const bodies = JSON.stringify(received.map(({ body }) => body))
        for (const { tools } of received) assert.notInclude(tools, "Agent", "a denied Task")
        assert.include(bodies, "quatrain-mark")
        assert.include(bodies, description)
        assert.notInclude(bodies, "not-mine")
        if (agent.id === "codex") assert.include(bodies, '"effort":"high"')
      }).pipe(Effect.scoped)
    )
  }

  it.effect("Claude Code gives work to a subagent of its personality, and neither has a denied tool", () =>
    Effect.gen(function* () {
      const catalog = {
        personalities: {
          lead: {
            agents: ["claude-code"],
            subagents: ["critic"],
            effort: "low",
            toolsDenied: ["Write"],
            instructions: "You lead."
          }
        },
        skills: {},
        subagents: {
          critic: {
            description: "critic-mark",
            instructions: "You criticise: stern-mark.",
            tools: ["Read", "Write"]
          },
          other: { description: "not-mine", instructions: "x" }
        }
      }
      const worked = yield* AgentWorld.work(
        agentNamed("claude-code", catalog),
        ({ body, results, tools }) => {
          if (JSON.stringify(body["system"] ?? "").includes("stern-mark")) return { say: "It limps." }
          // Claude Code starts it in the background, and tells its answer in a later turn.
          if (JSON.stringify(body).includes("It limps.")) return { say: "It limps, they said." }
          if (results.length > 0 || !tools.includes("Agent")) return { say: "Wait." }
          const args = { description: "Criticise", prompt: "Look.", subagent_type: "critic" }
          return { call: [{ name: "Agent", args }] }
        },
        yield* AgentWorld.workspace(),
        { messages: [{ role: "user", content: "Lead." }], model: "scripted", personality: "lead" }
      )
      const received = yield* worked.upstream.received
      assert.isTrue(worked.final.ok, JSON.stringify([worked.final, yield* worked.upstream.problems]))
      assert.include(worked.final.content, "It limps, they said.")
      const bodies = received.map(({ body }) => JSON.stringify(body))
      assert.include(bodies.join("\n"), '"effort":"low"')
      assert.include(bodies.join("\n"), "critic-mark")
      assert.notInclude(bodies.join("\n"), "not-mine")
      for (const { tools } of received) assert.notInclude(tools, "Write")
      const own = received.filter((_, index) => bodies[index]!.includes("stern-mark"))
      assert.isNotEmpty(own)
      for (const { body, tools } of own) {
        assert.deepStrictEqual(tools, ["Read"])
        assert.strictEqual(body["model"], "scripted")
      }
    }).pipe(Effect.scoped)
  )

  it.effect("a repository that leads a change elsewhere is refused, and nothing is pushed to it", () =>
    Effect.gen(function* () {
      const plain = { name: "plain", instructions: "Be plain." }
      for (const [name, change, reason] of [
        ["linked", (work) => symlinkSync("/tmp", join(work, "personalities")), "LinkRefused"],
        [
          "filelinked",
          (work) => {
            writeFileSync(join(work, "target.md"), "x\n")
            mkdirSync(join(work, "personalities"))
            symlinkSync("../target.md", join(work, "personalities/plain.md"))
          },
          "LinkRefused"
        ],
        ["ignoring", (work) => writeFileSync(join(work, ".gitignore"), "personalities\n"), "ChangeIgnored"],
        ["broken", (work) => writeFileSync(join(work, "cogni.yaml"), "sandbox: 1\n"), "ConfigurationInvalid"]
      ] as ReadonlyArray<readonly [string, (work: string) => void, string]>) {
        const { branches, path, send } = yield* world(name)
        yield* commit(path, change)
        const { body, status } = yield* send("/api/v1/personalities", plain)
        assert.deepStrictEqual([name, status, body.error?.reason], [name, 409, reason], JSON.stringify(body))
        assert.strictEqual(yield* branches, 1)
      }
      const relay = yield* GitRelay
      assert.deepStrictEqual(yield* relay.kept, [])
    })
  )
})
