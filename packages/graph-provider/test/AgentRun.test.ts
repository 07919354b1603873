/**
 * Runs in a clone: what the relay receives, and where the agent works. The relay is recorded, without git. Also the
 * judgment of a run: an answer only with exit code 0, otherwise one line that states the reason.
 */
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import { AgentFailed, unreadable } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { Repositories } from "@cogni/sandbox-graph-provider/Repositories"
import { RepositoryUnavailable } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { type RepositoryDelivery } from "@cogni/sandbox-graph-provider/RepositoryUse"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import type { Canary } from "@cogni/sandbox-core/Canary"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Result } from "effect"
import * as GraphWorld from "./GraphWorld.ts"
import { context, envelope, grantOf, request, run, told, worker } from "./GraphWorld.ts"

const pushed: RepositoryDelivery = {
  status: "pushed",
  branch: "sandbox/x",
  pullRequestUrl: "https://example.org/x/y/pull/1",
  record: { status: "pushed" }
}

/** Data that a relay and an agent received. */
interface Told {
  canaries: ReadonlyArray<Canary>
  began: number
  succeeded: boolean | undefined
  argv: ReadonlyArray<string>
  preload: ReadonlyArray<string> | undefined
}

const world = (heard: Told, program: Program, delivery: RepositoryDelivery = pushed) =>
  SandboxGraphProvider.layer({ enabled: true, models: ["gpt"], canaries: "stop" }).pipe(
    Layer.provide([
      GraphObserver.layerNone,
      AgentRegistry.layer([worker, late]),
      Layer.mock(GrantStore, { find: () => Effect.succeed(grantOf()) }),
      Layer.succeed(
        Repositories,
        Repositories.of({
          check: () => Effect.void,
          inClone: (asked) => (canaries, use) => {
            heard.canaries = canaries
            const kept: RepositoryDelivery = {
              status: "kept",
              branch: "sandbox/x",
              record: { status: "kept", keptAt: "/var/clone" }
            }
            return use(
              { workspacePath: "/var/clone", within: (argv) => ["in-repo", "--", ...argv] },
              Effect.sync(() => {
                heard.began += 1
              })
            ).pipe(
              Effect.onExit((exit) =>
                Exit.isSuccess(exit) ? Effect.void : (asked.salvaged?.(kept) ?? Effect.void)
              ),
              Effect.map((value) => {
                heard.succeeded = value.succeeded
                return { value, delivery }
              })
            )
          }
        })
      )
    ]),
    Layer.provideMerge(
      SandboxRunner.layerMemory({
        program: (io) => {
          heard.argv = io.argv
          heard.preload = io.spec.preload
          return program(io)
        }
      })
    )
  )

/** An agent whose arguments show its working directory, and whose code can be loaded in advance. */
const late: Agent = {
  ...worker,
  id: AgentId.make("late"),
  preload: ["load", "late"],
  argv: ({ workingDirectory }) => ["late", workingDirectory]
}

const nothing = (): Told => ({ canaries: [], began: 0, succeeded: undefined, argv: [], preload: undefined })
const asked = (agent = "late") =>
  request({ graphId: `sandbox:${agent}`, repository: { url: "https://example.org/x/y" } })
const answers: Program = (io) => Effect.as(io.stdout(envelope("Lima")), 0)

describe("AgentRun.live", () => {
  it.effect("works in the clone, and states in the answer where its commits are", () => {
    const heard = nothing()
    return Effect.gen(function* () {
      const { events, final } = yield* told(asked())
      assert.deepStrictEqual(heard.argv, ["in-repo", "--", "late", "/workspace/repo"])
      assert.deepStrictEqual([heard.began, heard.succeeded], [1, true])
      const content = "Lima\n\nBranch: sandbox/x\nPull request: https://example.org/x/y/pull/1"
      assert.containSubset(final, {
        ok: true,
        content,
        branch: "sandbox/x",
        pullRequestUrl: "https://example.org/x/y/pull/1"
      })
      const texts = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : []))
      assert.strictEqual(texts.join(""), content)
      const record = yield* (yield* RunStore).get(context.runId)
      assert.deepStrictEqual(record?.spec.workspace, { type: "directory", path: "/var/clone" })
      assert.deepStrictEqual(record?.annotations?.["relay"], { status: "pushed" })
    }).pipe(Effect.provide(world(heard, answers)))
  })

  it.effect("asks for loaded code of its agent, but not in a clone, where it has another command", () => {
    const heard = nothing()
    return Effect.gen(function* () {
      yield* told(request({ graphId: "sandbox:late" }))
      assert.deepStrictEqual(heard.preload, ["load", "late"])
    }).pipe(
      Effect.provide(world(heard, answers)),
      Effect.andThen(told(asked()).pipe(Effect.provide(world(heard, answers)))),
      Effect.andThen(
        Effect.sync(() => assert.deepStrictEqual([heard.argv[0], heard.preload], ["in-repo", undefined]))
      )
    )
  })

  it.effect("passes the canaries of the run to the relay", () => {
    const heard = nothing()
    const says: Program = (io) => Effect.as(io.stdout(envelope(heard.canaries[0]?.secret ?? "")), 0)
    return Effect.gen(function* () {
      const { final } = yield* told(asked())
      assert.containSubset(final, { ok: false, error: "policy_denied", reason: "ExfiltrationSuspected" })
      assert.isUndefined(heard.succeeded)
    }).pipe(Effect.provide(world(heard, says)))
  })

  it.effect("records where the work of a run without a result is kept", () => {
    const heard = nothing()
    const says: Program = (io) => Effect.as(io.stdout(envelope(heard.canaries[0]?.secret ?? "")), 0)
    return Effect.gen(function* () {
      const { final } = yield* told(asked())
      assert.containSubset(final, { ok: false, branch: "sandbox/x" })
      const record = yield* (yield* RunStore).get(context.runId)
      assert.deepStrictEqual(record?.annotations?.["relay"], { status: "kept", keptAt: "/var/clone" })
    }).pipe(Effect.provide(world(heard, says)))
  })

  it.effect("records where the work of a cancelled run is kept", () => {
    const heard = nothing()
    const working = Deferred.makeUnsafe<void>()
    const hangs: Program = () => Effect.andThen(Deferred.succeed(working, undefined), Effect.never)
    return Effect.gen(function* () {
      const live = yield* run(asked())
      yield* Deferred.await(working)
      yield* live.cancel
      assert.containSubset(yield* live.final, { ok: false, error: "aborted", branch: "sandbox/x" })
      const record = yield* (yield* RunStore).get(context.runId)
      assert.deepStrictEqual(record?.annotations?.["relay"], { status: "kept", keptAt: "/var/clone" })
    }).pipe(Effect.scoped, Effect.provide(world(heard, hangs)))
  })

  it.effect("pushes nothing of an agent that failed, and reports the agent's failure", () => {
    const heard = nothing()
    const problem = { reason: "PolicyRefused", message: "its commits are refused" }
    return Effect.gen(function* () {
      const { final } = yield* told(asked())
      assert.isFalse(heard.succeeded)
      assert.containSubset(final, { ok: false, error: "internal", reason: "AgentFailed", content: "Lima" })
      assert.notInclude(final.content, "Branch:")
    }).pipe(
      Effect.provide(
        world(heard, (io) => Effect.as(io.stdout(envelope("Lima")), 3), {
          ...pushed,
          status: "failed",
          problem
        })
      )
    )
  })

  it.effect.each<[string, "policy_denied" | "internal"]>([
    ["PolicyRefused", "policy_denied"],
    ["OriginUnavailable", "internal"]
  ])(
    "reports commits that are not delivered because of %s as a failure that keeps the answer",
    ([reason, error]) => {
      const problem = { reason, message: "it was not sent" }
      return Effect.gen(function* () {
        const { final } = yield* told(asked())
        assert.containSubset(final, { ok: false, error, reason, message: "it was not sent", content: "Lima" })
      }).pipe(Effect.provide(world(nothing(), answers, { ...pushed, status: "failed", problem })))
    }
  )

  it.effect("excludes an agent's standard error from its answer", () =>
    Effect.gen(function* () {
      const { final } = yield* told(asked("worker"))
      assert.isTrue(final.ok, final.message)
    }).pipe(
      Effect.provide(
        world(nothing(), (io) =>
          Effect.as(Effect.andThen(io.stderr("warning\n"), io.stdout(envelope("Lima"))), 0)
        )
      )
    )
  )

  it.effect("gets each clone on behalf of the account and the grant of its own run", () => {
    const users: Array<unknown> = []
    const asking = Layer.succeed(
      Repositories,
      Repositories.of({
        check: () => Effect.void,
        inClone: () => () =>
          Effect.gen(function* () {
            const user = yield* ConnectionUser
            const authority = yield* Effect.orDie(user!.authority)
            users.push([user!.billingAccountId, user!.runId, authority.grantId, authority.billingAccountId])
            return yield* new RepositoryUnavailable({ reason: "CredentialsDenied", detail: "denied" })
          })
      })
    )
    const as = (account: string, runId: string) =>
      told(
        { ...asked("worker"), caller: { ...request().caller, billingAccountId: account } },
        { ...context, grantId: `grant-of-${account}`, runId: RunId.make(runId) }
      )
    return Effect.gen(function* () {
      const ends = yield* Effect.all([as("acme", "run-000000000001"), as("beta", "run-000000000002")], {
        concurrency: "unbounded"
      })
      for (const { final } of ends) {
        assert.containSubset(final, { ok: false, error: "policy_denied", reason: "CredentialsDenied" })
      }
      assert.sameDeepMembers(users, [
        ["acme", "run-000000000001", "grant-of-acme", "acme"],
        ["beta", "run-000000000002", "grant-of-beta", "beta"]
      ])
    }).pipe(
      Effect.provide(
        GraphWorld.world({
          repositories: asking,
          grants: ["acme", "beta"].map((account) =>
            grantOf({ id: `grant-of-${account}`, billingAccountId: account })
          )
        })
      )
    )
  })

  it.effect("starts no agent, records nothing and uses nothing if the clone is unavailable", () => {
    const none = Layer.succeed(
      Repositories,
      Repositories.of({
        check: () => Effect.void,
        inClone: () => () =>
          Effect.fail(new RepositoryUnavailable({ reason: "OriginUnavailable", detail: "it is not there" }))
      })
    )
    return Effect.gen(function* () {
      const { events, final } = yield* told(asked("worker"))
      assert.containSubset(final, { ok: false, error: "internal", reason: "OriginUnavailable" })
      assert.containSubset(events[0], { type: "usage_report", fact: { inputTokens: 0, outputTokens: 0 } })
      assert.deepStrictEqual(yield* (yield* RunStore).list, [])
    }).pipe(
      Effect.provide(
        SandboxGraphProvider.layer({ enabled: true, models: ["gpt"] }).pipe(
          Layer.provide([
            GraphObserver.layerNone,
            AgentRegistry.layer([worker]),
            Layer.mock(GrantStore, { find: () => Effect.succeed(grantOf()) }),
            none
          ]),
          Layer.provideMerge(SandboxRunner.layerMemory())
        )
      )
    )
  })
})

const ended = (exitCode: number, stderr = "") => ({
  exitCode,
  output: { ...emptyOutput, stderr: { text: stderr, bytes: stderr.length, truncated: false } }
})

const problemOf = (judged: ReturnType<typeof AgentRun.judge>) =>
  Result.isFailure(judged) ? judged.failure : assert.fail("an answer")

describe("AgentRun.judge", () => {
  it("rejects an answer with a non-zero exit code, and keeps its text", () => {
    const problem = problemOf(AgentRun.judge(Result.succeed({ text: "Lima" }), ended(137)))
    assert.containSubset(problem, { code: "exit", textSoFar: "Lima" })
    assert.strictEqual(problem.message, "the agent ended with exit code 137")
  })

  it("reports the exit code and the last line of stderr if an agent gave no reason", () => {
    const problem = problemOf(
      AgentRun.judge(unreadable("it wrote nothing"), ended(2, "first\nno such model\n"))
    )
    assert.strictEqual(problem.code, "exit")
    assert.strictEqual(problem.message, "the agent ended with exit code 2, after saying: no such model")
  })

  it("prefers an agent's own reason to its exit code", () => {
    const failure = new AgentFailed({ code: "rate_limit", detail: "later", textSoFar: "half" })
    for (const exitCode of [0, 1]) {
      assert.deepStrictEqual(problemOf(AgentRun.judge(Result.fail(failure), ended(exitCode))), {
        code: "rate_limit",
        message: "the agent failed: later (rate_limit)",
        textSoFar: "half"
      })
    }
  })

  it("reports a problem in one line of limited length, whatever the agent writes", () => {
    const long = `a\n\r\t${"x".repeat(1_000_000)}`
    const failure = new AgentFailed({ code: long, detail: long, textSoFar: "" })
    const { code, message } = problemOf(AgentRun.judge(Result.fail(failure), ended(0)))
    assert.isAtMost(code.length, 200)
    assert.isAtMost(message.length, 4000)
    assert.notMatch(`${code}${message}`, /[\n\r\t]/u)
    const said = problemOf(AgentRun.judge(unreadable(""), ended(1, long)))
    assert.isAtMost(said.message.length, 200)
  })
})
