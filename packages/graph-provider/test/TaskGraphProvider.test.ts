/** Tasks on an in-memory runner: their events, their results, and their admission. */
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import { GraphFinal } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { Repositories } from "@cogni/sandbox-graph-provider/Repositories"
import { type RepositoryDelivery } from "@cogni/sandbox-graph-provider/RepositoryUse"
import type * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as TaskGraphProvider from "@cogni/sandbox-graph-provider/graphs/TaskGraphProvider"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { context, grantOf, Heard } from "./GraphWorld.ts"
import * as World from "./TaskWorld.ts"
import { call, traffic } from "./Traffic.ts"

const { asked, callOf, program, told, world } = World

const says = (text: string) => ChatModel.says(text)
const runs = (command: string, id: string) => ChatModel.calls(callOf("shell__exec", { command }, id))

const refusedRead = 'validation: "none" does not exist. List the directory above it to see what exists'

describe("TaskGraphProvider", () => {
  it.effect("emits the model's text and tool calls, and returns the answer and the patch", () => {
    const specs: Array<ContainerSpec> = []
    const { heard, layer } = world({
      program: program((io) => {
        specs.push(io.spec)
        return Effect.as(io.stdout(`ran ${io.argv.join(" ")}`), 3)
      }),
      answers: [
        [{ type: "text_delta", delta: "Let me look." }, ...runs("node --test", "c1")],
        ChatModel.calls(
          callOf("file__read", { path: "none" }, "c2"),
          callOf("file__write", { path: "a", content: "b" }, "c3")
        ),
        says("Fixed.")
      ]
    })
    return Effect.gen(function* () {
      const { events, final } = yield* told(
        asked({
          messages: [
            { role: "system", content: "Be brief" },
            { role: "user", content: "Fix it" }
          ]
        })
      )
      assert.deepStrictEqual(
        events.flatMap((event): ReadonlyArray<unknown> =>
          event.type === "usage_report"
            ? [event.type]
            : event.type === "status"
              ? [`status ${event.phase}`]
              : [event]
        ),
        [
          "status entrypoint",
          { type: "text_delta", delta: "Let me look." },
          {
            type: "tool_call_start",
            toolCallId: "c1",
            toolName: "shell__exec",
            args: { command: "node --test" }
          },
          {
            type: "tool_call_result",
            toolCallId: "c1",
            result:
              '{"exit_code":3,"stdout":"ran /bin/sh -c node --test","stderr":"","truncated":false,"duration_ms":0,"timed_out":false,"cwd":"/workspace"}'
          },
          { type: "tool_call_start", toolCallId: "c2", toolName: "file__read", args: { path: "none" } },
          {
            type: "tool_call_result",
            toolCallId: "c2",
            result: refusedRead,
            isError: true
          },
          {
            type: "tool_call_start",
            toolCallId: "c3",
            toolName: "file__write",
            args: { path: "a", content: "b" }
          },
          { type: "tool_call_result", toolCallId: "c3", result: '{"path":"a","bytes":1}' },
          { type: "text_delta", delta: "\n\nFixed." },
          "status agent",
          "status patch",
          { type: "assistant_final", content: "Fixed." },
          "usage_report",
          { type: "done" }
        ]
      )
      assert.deepStrictEqual(final, {
        ok: true,
        runId: context.runId,
        requestId: "req-1",
        finishReason: "stop",
        content: "Fixed.",
        patch: { files: 1, bytes: 3, text: "abc" }
      })
      assert.isTrue(Schema.is(GraphFinal)(final))
      // The events contain the patch as well.
      assert.deepStrictEqual(
        events.find((event) => event.type === "status" && event.phase === "patch"),
        {
          type: "status",
          phase: "patch",
          label: "1 file, 3 bytes",
          patch: { files: 1, bytes: 3, text: "abc" }
        }
      )
      // The model was called over the run's own socket, as the request's model, with one system message.
      assert.deepStrictEqual(heard.places[0], { socketPath: `/memory/${context.runId}/llm.sock` })
      assert.strictEqual(heard.requests[0]?.model, "gpt")
      const [system, user, ...rest] = heard.requests[0]?.messages ?? []
      assert.match(system?.content ?? "", /^You work on files in \/workspace[^]*Be brief$/u)
      assert.deepStrictEqual([user, rest], [{ role: "user", content: "Fix it" }, []])
      // Nothing inside the container concerns the model.
      const inside = JSON.stringify(specs[0])
      assert.include(inside, "/workspace")
      assert.notMatch(inside, /llm|OPENAI|ANTHROPIC|COGNI_/u)
    }).pipe(Effect.provide(layer))
  })

  it.effect("uses the identity of the grant, not of the request, and records it", () => {
    const { layer } = world({
      answers: [says("Done.")],
      grants: [grantOf({ billingAccountId: "acct", userId: "granted" })]
    })
    return Effect.gen(function* () {
      yield* told()
      const record = yield* World.recordOf()
      assert.deepInclude(record?.spec.llm?.identity, {
        billingAccountId: "acct",
        userId: "granted",
        graphId: "sandbox:task",
        attempt: 2
      })
      assert.strictEqual(record?.spec.llm?.caller, "host")
      assert.containSubset(record?.annotations, {
        graph: { graphId: "sandbox:task", grantId: "grant-1", ok: true, patch: { files: 1, bytes: 3 } }
      })
      assert.deepStrictEqual(yield* ContainerRuntime.use((runtime) => runtime.leftovers(context.runId)), [])
    }).pipe(Effect.provide(layer))
  })

  it.effect("calls the observer once", () =>
    Effect.gen(function* () {
      const { final } = yield* told()
      const { ends } = yield* Heard
      assert.lengthOf(ends, 1)
      assert.deepStrictEqual(ends[0]?.final, final)
    }).pipe(Effect.provide(world({ answers: [says("Done.")] }).layer))
  )
})

describe("TaskGraphProvider admission", () => {
  const never = Effect.die(new Error("a container was made")) as Effect.Effect<never>
  const refused = (options: World.TaskWorldOptions, request = asked()) => {
    const { heard, layer } = world({ ...options, program: () => never })
    return Effect.gen(function* () {
      const { events, final } = yield* told(request)
      assert.deepStrictEqual(
        events.map(({ type }) => type),
        ["usage_report", "error", "done"]
      )
      assert.deepStrictEqual(heard.requests, [])
      assert.isUndefined(yield* World.recordOf())
      const check = yield* Effect.flip(
        TaskGraphProvider.TaskGraphProvider.use((provider) => provider.check(request, context))
      )
      assert.strictEqual(check.reason, final.reason)
      return final
    }).pipe(Effect.provide(layer))
  }

  it.effect("refuses a task unless sandboxes are enabled and a grant allows it", () =>
    Effect.gen(function* () {
      assert.deepInclude(yield* refused({ enabled: false }), {
        error: "policy_denied",
        reason: "SandboxDisabled"
      })
      assert.deepInclude(yield* refused({ grants: [] }), { error: "authz_denied", reason: "GrantNotFound" })
      for (const [grant, reason] of [
        [{ allowSandbox: false }, "SandboxNotAllowed"],
        [{ scopes: ["graph:execute:sandbox:agent"] }, "GrantScopeMismatch"],
        [{ expiresAt: new Date(-1) }, "GrantExpired"],
        [{ revokedAt: new Date(0) }, "GrantRevoked"]
      ] as const) {
        assert.deepInclude(yield* refused({ grants: [grantOf(grant)] }), { error: "authz_denied", reason })
      }
    })
  )

  it.effect("refuses a model, a tool and a repository beyond the grant as authz_denied", () =>
    Effect.gen(function* () {
      const grants = [grantOf({ permissions: {} })]
      const repository = { url: "https://example.org/x/y" }
      for (const [request, reason] of [
        [asked({ model: "o1-pro" }), "ModelNotGranted"],
        [asked({ toolIds: ["core__get_current_time"] }), "ToolNotGranted"],
        [asked({ repository }), "RepositoryNotGranted"]
      ] as const) {
        assert.deepInclude(yield* refused({ grants }, request), { error: "authz_denied", reason })
      }
    })
  )

  it.effect("offers the model the host tools that a request names, of those that the host has", () =>
    Effect.gen(function* () {
      const named = asked({ toolIds: ["core__get_current_time"] })
      const { heard, layer } = world({
        tools: ["core__get_current_time", "core__other"].map((name) =>
          Tool.make({
            name,
            description: "Tells something.",
            effect: "read_only",
            input: Schema.Struct({}),
            output: Schema.Struct({}),
            execute: () => Effect.succeed({})
          })
        ),
        answers: [says("It is late.")],
        proxy: Layer.effect(
          LlmProxy.LlmProxy,
          Effect.map(LlmProxy.makeMemory(), (memory) => ({
            ...memory,
            capabilities: { ...memory.capabilities, tools: ["core__get_current_time"] }
          }))
        )
      })
      const { final } = yield* Effect.provide(told(named), layer)
      assert.isTrue(final.ok, JSON.stringify(final))
      const offered = heard.requests[0]?.tools.map(({ name }) => name) ?? []
      assert.include(offered, "core__get_current_time")
      assert.include(offered, "shell__exec")
      assert.notInclude(offered, "core__other")
    })
  )

  it.effect("refuses a request beyond a task's capabilities before any resource is created", () =>
    Effect.gen(function* () {
      const invalid = { error: "invalid_request", reason: "CapabilityMissing" } as const
      assert.deepInclude(yield* refused({}, asked({ toolIds: ["core__get_current_time"] })), invalid)
      assert.deepInclude(yield* refused({}, asked({ personality: "cook" })), invalid)
      assert.deepInclude(yield* refused({}, asked({ repository: { url: "https://example.org/x/y" } })), {
        error: "invalid_request",
        reason: "RelayAbsent"
      })
      assert.deepInclude(yield* refused({ imageOf: () => "No Image" }), {
        error: "invalid_request",
        reason: "InvalidSpec"
      })
    })
  )
})

describe("TaskGraphProvider outcomes", () => {
  const finalOf = (
    answers: ReadonlyArray<ChatModel.ScriptedAnswer>,
    options: World.TaskWorldOptions = {},
    request = asked()
  ) =>
    Effect.map(told(request), ({ events, final }) => {
      assert.deepStrictEqual(
        events.slice(-2).map(({ type }) => type),
        final.ok ? ["usage_report", "done"] : ["error", "done"]
      )
      return final
    }).pipe(Effect.provide(world({ ...options, answers }).layer))

  it.effect("reports a broken limit of the loop, and returns the patch so far", () =>
    Effect.gen(function* () {
      const patch = { files: 1, bytes: 3, text: "abc" }
      const forever = Array.from({ length: 9 }, (_, index) => runs("a", `c${index}`))
      assert.containSubset(yield* finalOf(forever, { limits: { stepsMax: 3 } }), {
        ok: false,
        error: "internal",
        reason: "StepsExhausted",
        patch
      })
      assert.containSubset(yield* finalOf(forever, { limits: { toolCallsMax: 2 } }), {
        reason: "ToolCallsExhausted",
        patch
      })
      const flies = Array.from({ length: 9 }, (_, index) => ChatModel.calls(callOf("fly", {}, `c${index}`)))
      assert.containSubset(yield* finalOf(flies, { limits: { invalidCallsMax: 2 } }), {
        reason: "InvalidCallsExhausted",
        message: "the model made more than 2 invalid calls. Use a model that calls tools reliably",
        patch
      })
    })
  )

  it.effect("reports a failed model call by its code", () =>
    Effect.gen(function* () {
      const rows = [
        ["insufficient_quota", "insufficient_credits", "ModelInsufficientQuota"],
        ["refused", "policy_denied", "ModelRefused"],
        ["unauthorized", "internal", "ModelUnauthorized"],
        ["invalid_answer", "internal", "ModelInvalidAnswer"]
      ] as const
      for (const [code, error, reason] of rows) {
        const final = yield* finalOf([ChatError.failed(code, "because")])
        assert.containSubset(final, { ok: false, error, reason })
        assert.match(final.message ?? "", /because/u)
      }
    })
  )

  it.effect("ends the running command at the time limit, and still makes the patch", () =>
    Effect.gen(function* () {
      const { layer } = world({
        answers: [runs("sleep", "c1")],
        program: program(() => Effect.never),
        limits: { runtimeSecondsMax: 20 }
      })
      const fiber = yield* Effect.forkChild(Effect.provide(told(asked({ runtimeSecondsMax: 3600 })), layer))
      yield* Effect.repeat(Effect.yieldNow, { times: 500 })
      yield* TestClock.adjust("21 seconds")
      const { events, final } = yield* Fiber.join(fiber)
      assert.containSubset(final, { ok: false, error: "timeout", reason: "TimedOut", patch: { text: "abc" } })
      const calls = events.filter(({ type }) => type.startsWith("tool_call"))
      assert.containSubset(calls.at(-1), { type: "tool_call_result", toolCallId: "c1", isError: true })
    })
  )

  it.effect("reports a sandbox that cannot be created", () =>
    Effect.gen(function* () {
      const final = yield* finalOf([says("never")], { images: new Set() })
      assert.containSubset(final, { ok: false, error: "internal", reason: "ImageNotFound" })
      assert.notProperty(final, "patch")
    })
  )

  it.effect(
    "reports why a sandbox was ended during a task, with the text and the usage until then, without a patch",
    () => {
      const exhaustion = { budget: "calls", limit: 1, used: 1 } as const
      const used = traffic([call()], { exhausted: exhaustion })
      const { layer } = world({
        answers: [[{ type: "text_delta", delta: "Half" }, ...runs("a", "c1")], says("never")],
        program: program(() => Effect.never),
        proxy: World.proxyOf(used, [{ _tag: "BudgetExhausted", exhaustion }], "2 seconds")
      })
      return Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(
          told(asked({ budget: { callsMax: 1, onExhausted: "stop" } })).pipe(Effect.provide(layer))
        )
        yield* Effect.repeat(Effect.yieldNow, { times: 500 })
        yield* TestClock.adjust("1 minute")
        const { events, final } = yield* Fiber.join(fiber)
        assert.containSubset(final, {
          ok: false,
          error: "insufficient_credits",
          reason: "BudgetExceeded",
          content: "Half"
        })
        assert.notProperty(final, "patch")
        assert.containSubset(
          events.filter(({ type }) => type === "usage_report"),
          [{ fact: { billingAccountId: "acct", inputTokens: 11 } }]
        )
        assert.containSubset(
          events.findLast(({ type }) => type.startsWith("tool_call")),
          {
            type: "tool_call_result",
            toolCallId: "c1",
            isError: true
          }
        )
      })
    }
  )

  it.effect("does not wait for the model if the sandbox ends during a model call", () => {
    const exhaustion = { budget: "calls", limit: 1, used: 1 } as const
    const { layer } = world({
      answers: [Stream.never],
      proxy: World.proxyOf(traffic([call()]), [{ _tag: "BudgetExhausted", exhaustion }], "2 seconds")
    })
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(
        told(asked({ budget: { callsMax: 1, onExhausted: "stop" } })).pipe(Effect.provide(layer))
      )
      yield* Effect.repeat(Effect.yieldNow, { times: 500 })
      yield* TestClock.adjust("10 seconds")
      assert.isDefined(fiber.pollUnsafe())
      assert.containSubset((yield* Fiber.join(fiber)).final, { reason: "BudgetExceeded" })
    })
  })

  it.effect("reports an exhausted budget from the proxy's data if model calls are refused", () => {
    const exhaustion = { budget: "calls", limit: 1, used: 1 } as const
    const used = traffic([call()], { exhausted: exhaustion })
    return Effect.gen(function* () {
      const final = yield* finalOf([runs("a", "c1"), ChatError.failed("insufficient_quota", "no")], {
        proxy: World.proxyOf(used)
      })
      assert.containSubset(final, {
        error: "insufficient_credits",
        reason: "BudgetExceeded",
        message:
          "the run's model budget of 1 call is spent (1 used). Raise budget, or give the task less to do",
        patch: { text: "abc" }
      })
    })
  })

  it.effect("reports a patch that cannot be made beside the answer", () =>
    Effect.gen(function* () {
      const final = yield* finalOf([says("Done.")], { program: () => Effect.succeed(1) })
      assert.containSubset(final, { ok: true, content: "Done.", patch: { files: 0, bytes: 0 } })
      assert.match(final.patch?.problem ?? "", /could not be made/u)
    })
  )

  it.effect("ends a run whose reader leaves, and leaves no resource", () => {
    const { layer } = world({ answers: [runs("a", "c1")], program: program(() => Effect.never) })
    return Effect.gen(function* () {
      const final = yield* Effect.scoped(
        Effect.gen(function* () {
          const live = yield* World.run(asked())
          yield* live.events.pipe(
            Stream.takeUntil(({ type }) => type === "tool_call_start"),
            Stream.runDrain
          )
          return yield* live.final
        })
      )
      assert.containSubset(final, { ok: false, error: "aborted", reason: "Aborted" })
      assert.deepStrictEqual(yield* ContainerRuntime.use((runtime) => runtime.leftovers(context.runId)), [])
    }).pipe(Effect.provide(layer))
  })
})

describe("TaskGraphProvider in a repository", () => {
  const pushed: RepositoryDelivery = {
    status: "pushed",
    branch: "sandbox/x",
    pullRequestUrl: "https://example.org/x/y/pull/1",
    record: { status: "pushed" }
  }
  const inClone = (heard: { began: number; succeeded: Array<boolean> }, delivery = pushed) =>
    Layer.succeed(
      Repositories,
      Repositories.of({
        check: () => Effect.void,
        inClone: () => (_, use) =>
          use(
            { workspacePath: "/var/clone", within: (argv) => ["in-repo", "--", ...argv] },
            Effect.sync(() => {
              heard.began += 1
            })
          ).pipe(
            Effect.map((value) => {
              heard.succeeded.push(value.succeeded)
              return { value, delivery }
            })
          )
      })
    )
  const request = asked({ repository: { url: "https://example.org/x/y" } })

  it.effect("works in the clone, and reports where the commits are", () => {
    const heard = { began: 0, succeeded: [] as Array<boolean> }
    const places: Array<string> = []
    const { layer } = world({
      answers: [
        ChatModel.calls(
          callOf("file__write", { path: "a", content: "b" }, "c0"),
          callOf("shell__exec", { command: "a" }, "c1")
        ),
        says("Done.")
      ],
      repositories: inClone(heard),
      program: program((io) => {
        places.push(
          io.argv[0] ?? "",
          io.workingDirectory,
          io.spec.mounts.find(({ target }) => target === "/workspace")?.source ?? ""
        )
        return Effect.succeed(0)
      })
    })
    return Effect.gen(function* () {
      const { events, final } = yield* told(request)
      assert.containSubset(final, {
        ok: true,
        branch: "sandbox/x",
        pullRequestUrl: "https://example.org/x/y/pull/1",
        content: "Done.\n\nBranch: sandbox/x\nPull request: https://example.org/x/y/pull/1",
        patch: { text: "abc" }
      })
      assert.deepStrictEqual(heard, { began: 1, succeeded: [true] })
      assert.deepStrictEqual(places, [
        "/bin/sh",
        "/workspace/repo",
        "/var/clone",
        "in-repo",
        "/workspace",
        "/var/clone"
      ])
      const text = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : [])).join("")
      assert.strictEqual(text, final.content)
      assert.containSubset((yield* World.recordOf())?.annotations, { relay: { status: "pushed" } })
    }).pipe(Effect.provide(layer))
  })

  it.effect("reports changes that could not be committed, and returns them in the patch", () => {
    const { layer } = world({
      answers: [says("Done.")],
      repositories: inClone(
        { began: 0, succeeded: [] },
        { status: "skipped", branch: "sandbox/x", record: {} }
      ),
      program: program((io) =>
        Effect.as(io.stderr("warning: x\ncogni-repo: what was left uncommitted could not be committed\n"), 0)
      )
    })
    return Effect.gen(function* () {
      const { final } = yield* told(request)
      assert.containSubset(final, {
        ok: false,
        error: "internal",
        reason: "CommitFailed",
        message:
          "cogni-repo: what was left uncommitted could not be committed. The patch contains the changes",
        patch: { text: "abc" }
      })
    }).pipe(Effect.provide(layer))
  })

  it.effect("reports an unfinished task and a failed delivery as failures", () =>
    Effect.gen(function* () {
      const heard = { began: 0, succeeded: [] as Array<boolean> }
      const kept: RepositoryDelivery = { status: "kept", branch: "sandbox/x", record: {} }
      const half = world({
        answers: [runs("a", "c1")],
        limits: { stepsMax: 1 },
        repositories: inClone(heard, kept)
      })
      assert.containSubset((yield* Effect.provide(told(request), half.layer)).final, {
        ok: false,
        reason: "StepsExhausted",
        branch: "sandbox/x"
      })
      assert.deepStrictEqual(heard.succeeded, [false])
      const failed: RepositoryDelivery = {
        status: "failed",
        branch: "sandbox/x",
        problem: { reason: "PolicyRefused", message: "no" },
        record: {}
      }
      const refused = world({ answers: [says("Done.")], repositories: inClone(heard, failed) })
      assert.containSubset((yield* Effect.provide(told(request), refused.layer)).final, {
        ok: false,
        error: "policy_denied",
        reason: "PolicyRefused"
      })
    })
  )
})

describe("TaskGraphProvider beside other graphs", () => {
  it.effect("handles the task in an executor, and no other graphs", () => {
    const { layer } = world({ answers: [says("Done.")] })
    return Effect.gen(function* () {
      const task = yield* TaskGraphProvider.TaskGraphProvider
      const other: SandboxGraphProvider.SandboxGraphProvider["Service"] = {
        providerId: "sandbox",
        canHandle: (graphId) => graphId.startsWith("sandbox:"),
        check: () => Effect.die(new Error("asked")),
        run: () => Effect.die(new Error("asked"))
      }
      const executor = yield* AggregatingGraphExecutor.make([task, other])
      const final = yield* Effect.scoped(Effect.flatMap(executor.run(asked(), context), (live) => live.final))
      assert.isTrue(final.ok)
      assert.isFalse(task.canHandle(GraphId.make("sandbox:agent")))
      assert.isFalse(task.canHandle(GraphId.make("sandbox:tasks")))
      assert.isTrue(executor.canHandle(GraphId.make("sandbox:agent")))
    }).pipe(Effect.provide(layer))
  })

  it.effect("is listed in a catalog, with its capabilities", () =>
    Effect.gen(function* () {
      const list = yield* AgentCatalog.AgentCatalog.use((catalog) => catalog.list)
      const task = list.find(({ graphId }) => graphId === "sandbox:task")
      assert.containSubset(task, {
        agentId: "sandbox:task",
        name: "Task",
        capabilities: { tools: true, streaming: "delta", toolEvents: true, personalities: [] }
      })
      assert.isTrue(Schema.is(AgentCatalog.AgentDescriptor)(task))
      assert.isAbove(list.length, 1)
    }).pipe(
      Effect.provide(
        AgentCatalog.layer([TaskGraphProvider.catalog]).pipe(Layer.provide(AgentRegistry.layer()))
      )
    )
  )
})
