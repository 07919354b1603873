/** A graph run with a repository: clone before the run, delivery after it, and the outcome in the answer. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as RelayRepositories from "@cogni/sandbox-server/RelayRepositories"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { join } from "node:path"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const token = "ghs_31_planted.for-a-graph.0123456789abcdef"

/** Agent that runs a script in its repository, and then answers. */
const worker = (id: string, script: string): Agent => ({
  ...minimal,
  id: AgentId.make(id),
  name: id,
  capabilities: { ...minimal.capabilities, tools: true },
  argv: () => ["sh", "-c", `set -e\n${script}\nexec cogni-agent`]
})

const agents = [
  worker("committer", "echo repaired >>README.md\ngit commit -qam 'Repair it'\necho left >NOTES.md"),
  worker(
    "intruder",
    "mkdir -p .github/workflows\necho 'on: push' >.github/workflows/x.yml\ngit add .\ngit commit -qm CI"
  ),
  worker("breaker", "echo half >HALF.md\ngit add .\ngit commit -qm Half\nexit 3"),
  worker("idler", ":")
]

const stage = Effect.gen(function* () {
  const origin = yield* GitOrigin.acquire({ password: token })
  const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
  origin.extra = api.handle
  const model = yield* ModelApi.acquire
  const { path, url } = yield* origin.make("acme/app", { "README.md": "hello\n" })
  const relay = Layer.unwrap(
    Effect.map(RunHarness.Directory, (directory) =>
      HostGitRelay.layer({ directory: join(directory, "relays"), image: Images.runtime, owners: HostOwner })
    )
  ).pipe(
    Layer.provide(Forge.layer({ forges: { [origin.url]: "github" } })),
    Layer.provide(
      GitCredentials.layerTokens([
        { server: origin.url, username: "x-access-token", token: Redacted.make(token) }
      ])
    )
  )
  const graphs = GraphHarness.layer(
    GatewayLlmProxy.layer({ url: model.url, key: Redacted.make("sk-planted"), image: Images.gateway }).pipe(
      Layer.provide(UsageObserver.layerNone)
    ),
    { agents },
    Layer.provideMerge(RelayRepositories.layer({ hostOrigins: true }), relay)
  )
  return { api, graphs, path, url }
})

const asked = (agent: string, url: string, pullRequest = false) =>
  GraphHarness.request({
    graphId: `sandbox:${agent}`,
    repository: { url, ...(pullRequest ? { pullRequest } : {}) }
  })

it.layer(Layer.empty, { excludeTestServices: true })("a graph on a repository", (it) => {
  it.effect(
    "delivers commits and leftovers as a branch and a pull request, and names both in the answer",
    () =>
      Effect.gen(function* () {
        const { api, graphs, path, url } = yield* stage
        yield* Effect.gen(function* () {
          const runId = yield* RunId.generate
          const { events, final } = yield* GraphHarness.told(asked("committer", url, true), runId)
          assert.isTrue(final.ok, final.message)
          assert.strictEqual(final.branch, `sandbox/${runId}`)
          assert.strictEqual(
            yield* GitOrigin.git(path, "log", "--format=%s", `main..sandbox/${runId}`),
            "Changes that the agent left uncommitted\nRepair it"
          )
          assert.isDefined(final.pullRequestUrl)
          assert.deepStrictEqual(api.complaints, [])
          assert.isTrue(
            final.content?.endsWith(`Branch: sandbox/${runId}\nPull request: ${final.pullRequestUrl}`),
            final.content
          )
          const texts = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : []))
          assert.strictEqual(texts.join(""), final.content)
          const record = yield* (yield* RunStore).get(runId)
          assert.containSubset(record?.annotations, {
            relay: { status: "pushed", branch: `sandbox/${runId}`, pullRequestUrl: final.pullRequestUrl },
            graph: { graphId: "sandbox:committer", ok: true }
          })
          assert.notInclude(JSON.stringify([events, final, record]), token)
          // Delivered commits are not kept.
          assert.deepStrictEqual(yield* (yield* GitRelay).kept, [])
        }).pipe(Effect.provide(graphs))
      })
  )

  it.effect(
    "keeps commits that the policy refuses or that a failed agent made, and skips a run without changes",
    () =>
      Effect.gen(function* () {
        const { graphs, path, url } = yield* stage
        const before = yield* GitOrigin.refsOf(path)
        yield* Effect.gen(function* () {
          const refused = yield* GraphHarness.told(asked("intruder", url), yield* RunId.generate)
          assert.containSubset(refused.final, {
            ok: false,
            error: "policy_denied",
            reason: "PolicyRefused"
          })
          assert.include(refused.final.content, "sunny")
          const failed = yield* GraphHarness.told(asked("breaker", url), yield* RunId.generate)
          assert.containSubset(failed.final, { ok: false, error: "internal", reason: "AgentFailed" })
          assert.strictEqual((yield* (yield* GitRelay).kept).length, 2)
          const idle = yield* GraphHarness.told(asked("idler", url), yield* RunId.generate)
          assert.isTrue(idle.final.ok)
          assert.notInclude(idle.final.content, "Branch:")
          assert.strictEqual(yield* GitOrigin.refsOf(path), before)
          for (const { final } of [refused, failed]) {
            yield* (yield* GitRelay).discard(final.runId)
          }
        }).pipe(Effect.provide(graphs))
      })
  )

  it.effect("fails before any agent starts if the repository does not exist", () =>
    Effect.gen(function* () {
      const { graphs, url } = yield* stage
      yield* Effect.gen(function* () {
        const { events, final } = yield* GraphHarness.told(
          asked("committer", url.replace("app", "nowhere")),
          yield* RunId.generate
        )
        assert.containSubset(final, { ok: false, error: "internal", reason: "OriginUnavailable" })
        assert.deepStrictEqual(
          events.map(({ type }) => type),
          ["usage_report", "error", "done"]
        )
        assert.deepStrictEqual(yield* (yield* RunStore).list, [])
      }).pipe(Effect.provide(graphs))
    })
  )
})
