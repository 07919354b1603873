/** Tests repositories of runs over an in-memory relay. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as MemoryGitRelay from "../../git-relay/src/MemoryGitRelay.ts"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { Repositories } from "@cogni/sandbox-graph-provider/Repositories"
import { type RepositoryRequest } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { type RepositoryDelivery } from "@cogni/sandbox-graph-provider/RepositoryUse"
import * as RelayRepositories from "@cogni/sandbox-server/RelayRepositories"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Result } from "effect"
import { question, serve } from "./ServerWorld.ts"

const url = "https://github.com/acme/app"

describe("RelayRepositories.requestOf", () => {
  it("converts a request for the relay, with the branch below sandbox/", () => {
    assert.deepStrictEqual(
      RelayRepositories.requestOf({ url, baseBranch: "main", branch: "tidy", pullRequest: true }),
      Result.succeed({ url, baseBranch: "main", branch: "sandbox/tidy", createPr: true } as never)
    )
    assert.deepStrictEqual(RelayRepositories.requestOf({ url }), Result.succeed({ url }))
    assert.deepStrictEqual(RelayRepositories.requestOf({ url, depth: 3 }), Result.succeed({ url, depth: 3 }))
  })

  it.each<[string, RepositoryRequest, string]>([
    ["a path of this host", { url: "/srv/repositories/app" }, "cannot be reached from this server"],
    ["the loopback address", { url: "http://127.0.0.1:8080/acme/app" }, "cannot be reached from this server"],
    ["a cloud's metadata", { url: "https://169.254.169.254/acme/app" }, "cannot be reached from this server"],
    ["the loopback address in IPv6", { url: "https://[::ffff:127.0.0.1]/acme/app" }, "not a plain https URL"],
    ["a link-local address", { url: "https://[fe80::1]/acme/app" }, "not a plain https URL"],
    ["the loopback name", { url: "https://localhost/acme/app" }, "cannot be reached from this server"],
    [
      "the loopback address as a number",
      { url: "https://2130706433/acme/app" },
      "cannot be reached from this server"
    ],
    ["an unspecified address", { url: "https://0.0.0.0/acme/app" }, "cannot be reached from this server"],
    ["a host of the network", { url: "https://172.17.0.1:18443/a/b" }, "cannot be reached from this server"],
    ["a forge that is not allowed", { url: "https://git.example/a/b" }, "cannot be reached from this server"],
    ["another port of a forge", { url: "https://github.com:8443/a/b" }, "cannot be reached from this server"],
    [
      "a name that begins with a forge's",
      { url: "https://github.com.evil.example/a/b" },
      "cannot be reached from this"
    ],
    ["a credential", { url: "https://me:hush@git.example/acme/app" }, "not a plain https URL"],
    ["plain http", { url: "http://git.example/acme/app" }, "not a plain https URL"],
    ["ssh", { url: "ssh://git@git.example/acme/app" }, "not a plain https URL"],
    ["a git option", { url: "--upload-pack=id" }, "not a plain https URL"],
    ["a branch outside sandbox/", { url, branch: "../main" }, "not valid for a run"],
    ["an invalid base branch", { url, baseBranch: "-x" }, "not a valid branch name"]
  ])("refuses %s", (_, request, message) => {
    const result = RelayRepositories.requestOf(request)
    if (Result.isSuccess(result)) return assert.fail("it was accepted")
    assert.include(result.failure.message, message)
    assert.notInclude(result.failure.message, "hush")
  })

  it("accepts repositories of this host if enabled", () => {
    const options = { hostOrigins: true }
    assert.isTrue(Result.isSuccess(RelayRepositories.requestOf({ url: "/srv/app" }, options)))
    assert.isTrue(
      Result.isFailure(RelayRepositories.requestOf({ url: "/srv/app", pullRequest: true }, options))
    )
  })
})

describe("a server with a relay", () => {
  const worker: Agent = {
    ...minimal,
    id: AgentId.make("worker"),
    capabilities: { ...minimal.capabilities, tools: true }
  }

  it.effect("gives the same answer at the same point for a disallowed forge and an unreachable one", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(
        RelayRepositories.layer({ forges: [{ host: "memory.example" }] }).pipe(
          Layer.provideMerge(MemoryGitRelay.layer())
        )
      )
      const git = Context.get(context, MemoryGitRelay.MemoryGit)
      const reachable = yield* git.origin("acme/app", { "a.txt": "a\n" })
      yield* git.trouble(reachable, { clone: "unknown_host" })
      const server = yield* serve({
        agents: [worker],
        repositories: Layer.succeed(Repositories, Context.get(context, Repositories))
      })
      const caller = yield* server.caller()
      const answer = Effect.fnUntraced(function* (repository: RepositoryRequest) {
        const { headers, messages, runId, status } = yield* caller.chat({
          ...question,
          graphId: "sandbox:worker",
          repository
        })
        const said = messages.map(({ data, event }) => `${event} ${data}`).join("\n")
        return [status, headers.get("content-type"), said.replaceAll(runId, "RUN").replaceAll(times, "TIME")]
      })
      const unreached = yield* answer({ url: reachable })
      assert.include(String(unreached[2]), "OriginUnavailable")
      for (const url of [
        "https://git.example/a/b",
        "https://172.17.0.1/a/b",
        "/srv/app",
        "http://localhost/a/b"
      ])
        assert.deepStrictEqual(yield* answer({ url }), unreached, url)
      // Other errors in a request are reported earlier, equally for both.
      const wrong = (url: string) =>
        Effect.map(
          caller.post({ ...question, graphId: "sandbox:worker", repository: { url, branch: "../main" } }),
          ({ body, status }) => [status, body.error]
        )
      const [status, error] = yield* wrong(reachable)
      assert.deepStrictEqual([status, error.reason], [400, "BranchRefused"])
      assert.deepStrictEqual(yield* wrong("https://git.example/a/b"), [status, error])
    })
  )
})

const times = /\d{4}-\d\d-\d\dT[\d:.]+Z/gu

describe("RelayRepositories", () => {
  const layer = RelayRepositories.layer({ forges: [{ host: "memory.example" }], hostOrigins: true }).pipe(
    Layer.provideMerge(MemoryGitRelay.layer())
  )

  const lived = Effect.fnUntraced(function* (options: {
    readonly commits: boolean
    readonly succeeded: boolean
    readonly trouble?: Parameters<MemoryGitRelay.MemoryGit["Service"]["trouble"]>[1]
  }) {
    const git = yield* MemoryGitRelay.MemoryGit
    const repositories = yield* Repositories
    const origin = yield* git.origin("acme/app", { "a.txt": "a\n" })
    yield* git.trouble(origin, options.trouble ?? {})
    const runId = yield* RunId.generate
    let within: ReadonlyArray<string> = []
    const ended = yield* repositories.inClone({ url: origin, runId })([], (place, began) =>
      Effect.gen(function* () {
        within = place.within(["agent"])
        yield* began
        if (options.commits) yield* git.commit({ request: { runId } } as never, { "b.txt": "b\n" })
        return { succeeded: options.succeeded }
      })
    )
    return { ...ended, runId, within, tip: yield* git.branchAt(origin, `sandbox/${runId}`) }
  })

  it.effect("pushes and reports the commits", () =>
    Effect.gen(function* () {
      const { delivery, runId, tip, within } = yield* lived({ commits: true, succeeded: true })
      assert.deepInclude(delivery, { status: "pushed", branch: `sandbox/${runId}` })
      assert.containSubset(delivery.record, { status: "pushed", tip })
      assert.containSubset(delivery.annotations?.["changes"], { patchTruncated: false })
      assert.typeOf(delivery.annotations?.["patch"], "string")
      assert.strictEqual(within.at(-1), "agent")
      assert.include(within, "--commit")
    }).pipe(Effect.provide(layer))
  )

  it.effect("skips the delivery without commits, and keeps the commits of a failed run", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* lived({ commits: false, succeeded: true })).delivery.status, "skipped")
      assert.strictEqual((yield* lived({ commits: true, succeeded: false })).delivery.status, "kept")
    }).pipe(Effect.provide(layer))
  )

  it.effect("tells the caller and the operator's log where the work of a failed run is kept", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const repositories = yield* Repositories
      const url = yield* git.origin("acme/app", { "a.txt": "a\n" })
      const logged: Array<string> = []
      const logger = Logger.make<unknown, void>(({ message }) => void logged.push(String(message)))
      const salvaged: Array<RepositoryDelivery> = []
      const runId = yield* RunId.generate
      const request = {
        url,
        runId,
        salvaged: (told: RepositoryDelivery) => Effect.sync(() => void salvaged.push(told))
      }
      const problem = yield* repositories
        .inClone(request)([], (_place, began) =>
          began.pipe(
            Effect.andThen(git.commit({ request: { runId } } as never, { "b.txt": "b\n" })),
            Effect.andThen(Effect.fail("out of memory"))
          )
        )
        .pipe(Effect.flip, Effect.provide(Logger.layer([logger])))
      assert.strictEqual(problem, "out of memory")
      assert.deepStrictEqual(
        salvaged.map(({ status }) => status),
        ["kept"]
      )
      assert.lengthOf(logged, 1)
      assert.include(logged[0], `the work for sandbox/${runId} is kept in `)
    }).pipe(Effect.provide(layer))
  )

  it.effect("reports a refused push as a problem of the delivery, not of the run", () =>
    Effect.gen(function* () {
      const { delivery } = yield* lived({ commits: true, succeeded: true, trouble: { push: "forbidden" } })
      assert.strictEqual(delivery.status, "failed")
      assert.strictEqual(delivery.problem?.reason, "PushRefused")
    }).pipe(Effect.provide(layer))
  )

  it.effect("reports a missing origin as OriginUnavailable", () =>
    Effect.gen(function* () {
      const problem = yield* Effect.flip(
        lived({ commits: true, succeeded: true, trouble: { clone: "not_found" } })
      )
      assert.deepInclude(problem, { _tag: "RepositoryUnavailable", reason: "OriginUnavailable" })
    }).pipe(Effect.provide(layer))
  )

  it.effect("gives the same answer for closed, filtered, refused, unresolvable and disallowed servers", () =>
    Effect.gen(function* () {
      const other = RelayRepositories.requestOf({ url: "https://172.17.0.1/acme/app" })
      const notAllowed = Result.isFailure(other) ? other.failure : assert.fail("it was accepted")
      for (const clone of ["unreachable", "unknown_host", "tls", "redirected", "timeout", "other"] as const) {
        const problem = yield* Effect.flip(lived({ commits: true, succeeded: true, trouble: { clone } }))
        assert.deepStrictEqual(problem, notAllowed, clone)
      }
    }).pipe(Effect.provide(layer))
  )

  it.effect("contacts no origin for a refused request", () =>
    Effect.gen(function* () {
      const repositories = yield* Repositories
      yield* repositories.check({ url: "/srv/app" })
      const runId = yield* RunId.generate
      const again = yield* Effect.flip(
        repositories.inClone({ url: "/srv/app", runId })([], () => Effect.die("it was used"))
      )
      assert.strictEqual(again.reason, "OriginUnavailable")
    }).pipe(Effect.provide(RelayRepositories.layer().pipe(Layer.provide(Layer.mock(GitRelay)({})))))
  )
})
