/** Handling a message: one configuration, one session, in a sandbox or on the host, with the place reported. */
import { assert, describe, it } from "@effect/vitest"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ImageNotFound, PostureMismatch, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type * as Orchestrator from "@cogni/sandbox-sessions/router/Orchestrator"
import { SessionRefused } from "@cogni/sandbox-sessions/sandbox/SandboxManager"
import { Deferred, Effect, Exit, Fiber, Schema, Scope, Tracer } from "effect"
import { TestClock } from "effect/testing"
import * as RouterWorld from "./RouterWorld.ts"

const { engineGone, message } = RouterWorld

const text = (sandbox: string, agents = "a: {}, b: {}") =>
  `sandbox: {enabled: true${sandbox}}\nagent_configs: {${agents}}\nrouting: {default_agent: a, senders: {"slack:B*": b}}\n`

const plain = text("")

describe("a message", () => {
  it.effect("is answered by the routed agent, with the rule, the place of execution and the session", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(plain)
      assert.deepStrictEqual(yield* handle({ ...message("ls"), messageId: "m1" }), {
        text: "sandbox",
        agent: "a",
        key: "slack:U1:a",
        rule: { _tag: "Default" },
        executor: "sandbox",
        fallback: false,
        runId: RouterWorld.runId,
        messageId: "m1"
      })
      const reply = yield* handle(message("ls", { senderId: "B7" }))
      assert.deepStrictEqual(
        [reply.agent, reply.key, reply.rule],
        ["b", "slack:B7:b", { _tag: "SenderPattern", channel: "slack", pattern: "B*" }]
      )
      assert.deepStrictEqual(
        world.inputs.map(({ agent, key }) => [agent.name, key]),
        [
          ["a", "slack:U1:a"],
          ["b", "slack:B7:b"]
        ]
      )
    })
  )

  it.effect("shares its session with earlier ones of the same sender and channel", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(plain)
      yield* handle(message())
      yield* handle(message())
      yield* handle(message("ls", { senderId: "U2" }))
      yield* handle(message("ls", { channel: "discord" }))
      assert.deepStrictEqual(
        world.log.filter((line) => line.startsWith("make")),
        ["make slack:U1:a", "make slack:U2:a", "make discord:U1:a"]
      )
    })
  )

  const wrong: ReadonlyArray<Partial<Orchestrator.Message> & { readonly more?: string }> = [
    { channel: "" },
    { channel: "x".repeat(65) },
    { channel: "a\nb" },
    { senderId: "" },
    { senderId: "x".repeat(255) },
    { senderId: "a\0" },
    { senderId: "\ud800" },
    { text: "é".repeat(128 * 1024 + 1) },
    { messageId: "" },
    { more: "x" }
  ]
  for (const part of wrong) {
    it.effect(`is refused if it is invalid: ${JSON.stringify(part).slice(0, 40)}`, () =>
      Effect.gen(function* () {
        const { handle, world } = yield* RouterWorld.make(plain)
        const error = yield* Effect.flip(handle({ ...message(), ...part }))
        assert.strictEqual(error.reason._tag, "MessageInvalid")
        assert.isFalse(error.isRetryable)
        assert.include(error.message, `${Object.keys(part)[0]!}: `)
        assert.deepStrictEqual(world.log, [])
      })
    )
  }

  it.effect("can have the maximum length", () =>
    Effect.gen(function* () {
      const { handle } = yield* RouterWorld.make(plain, { script: () => Effect.succeed("ok") })
      const reply = yield* handle({
        channel: ":".repeat(64),
        senderId: "😀".repeat(254),
        text: "x".repeat(256 * 1024),
        messageId: "x".repeat(256)
      })
      assert.strictEqual(reply.text, "ok")
    })
  )

  it.effect("fails with a reason, and the session continues", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(plain, {
        messageSecondsMax: 60,
        script: ({ text }) =>
          text === "fail"
            ? Effect.fail(RouterWorld.failed("it is too much"))
            : text === "die"
              ? Effect.die(new Error("secret detail"))
              : text === "hang"
                ? Effect.never
                : Effect.succeed(text)
      })
      const failed = yield* Effect.flip(handle(message("fail")))
      assert.strictEqual(failed.message, "a: it is too much. Ask less")
      assert.deepStrictEqual([failed.key, failed.agent], ["slack:U1:a", "a"])
      const died = yield* Effect.flip(handle(message("die")))
      assert.strictEqual(
        died.message,
        "a: the agent a failed with an internal error. Ask the operator of this host for the cause"
      )
      assert.isTrue(world.said.some((said) => said.startsWith("Error the agent a has a defect")))
      const late = yield* Effect.forkChild(Effect.flip(handle(message("hang"))))
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual((yield* Fiber.join(late)).reason._tag, "MessageTimedOut")
      assert.strictEqual((yield* handle(message("ok"))).text, "ok")
      assert.deepStrictEqual(world.log, ["make slack:U1:a"])
    })
  )

  it.effect("fails if the tools of the agent cannot be created", () =>
    Effect.gen(function* () {
      const { handle, sessions, world } = yield* RouterWorld.make(plain, {
        toolsFor: () => Effect.fail({ message: "there is no tool web.fetch" })
      })
      const error = yield* Effect.flip(handle(message()))
      assert.include(
        error.message,
        "the agent a has no tools: there is no tool web.fetch. Check tool_profile"
      )
      assert.deepStrictEqual(yield* sessions, [])
      assert.deepStrictEqual(world.log, [])
    })
  )
})

describe("messages", () => {
  it.effect("messages of one session are answered in order, one at a time, and of others concurrently", () =>
    Effect.gen(function* () {
      const said: Array<string> = []
      const { handle } = yield* RouterWorld.make(plain, {
        script: ({ senderId, text }) =>
          Effect.sync(() => said.push(`<${senderId}${text}`)).pipe(
            Effect.andThen(Effect.sleep("1 second")),
            Effect.andThen(Effect.sync(() => said.push(`${senderId}${text}>`))),
            Effect.as(text)
          )
      })
      const fibers = yield* Effect.forEach(["1", "2", "3"], (text) =>
        Effect.forEach(["U", "V"], (senderId) =>
          Effect.forkChild(handle(message(text, { senderId })), { startImmediately: true })
        )
      )
      yield* TestClock.adjust("3 seconds")
      yield* Effect.forEach(fibers.flat(), (fiber) => Fiber.join(fiber))
      assert.strictEqual(said.join(" "), "<U1 <V1 U1> <U2 V1> <V2 U2> <U3 V2> <V3 U3> V3>")
    })
  )

  it.effect("wait for each other, up to the limit of the session", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const { handle, sessions } = yield* RouterWorld.make(plain, {
        messagesPerSessionMax: 2,
        script: () => Effect.as(Deferred.await(gate), "ok")
      })
      const fibers = yield* Effect.forEach([1, 2], () =>
        Effect.forkChild(handle(message()), { startImmediately: true })
      )
      const error = yield* Effect.flip(handle(message()))
      assert.strictEqual(error.reason._tag, "SessionBusy")
      assert.isTrue(error.isRetryable)
      assert.deepStrictEqual(yield* sessions, [{ key: "slack:U1:a", messages: 2, idleSeconds: 0 }])
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(fibers, (fiber) => Fiber.join(fiber))
    })
  )

  it.effect.prop(
    "share one orchestrator per session when they arrive at once",
    [
      Schema.Array(Schema.Literals(["U1", "U2", "B1", "B2"])).check(
        Schema.isMinLength(1),
        Schema.isMaxLength(30)
      )
    ],
    ([senders]) =>
      Effect.gen(function* () {
        const { handle, world } = yield* RouterWorld.make(plain)
        yield* Effect.forEach(senders, (senderId) => handle(message("ls", { senderId })), {
          concurrency: "unbounded"
        })
        assert.sameMembers(
          world.inputs.map(({ key }) => key),
          [...new Set(senders)].map((sender) => `slack:${sender}:${sender.startsWith("B") ? "b" : "a"}`)
        )
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 60, seed: "first" } }
  )
})

describe("a session", () => {
  it.effect("ends after idle_seconds without a message, and is recreated for the next one", () =>
    Effect.gen(function* () {
      const { handle, sessions, world } = yield* RouterWorld.make(text(", idle_seconds: 10"))
      yield* handle(message())
      yield* TestClock.adjust("9 seconds")
      yield* handle(message())
      yield* TestClock.adjust("9 seconds")
      assert.notInclude(world.log, "end slack:U1:a")
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(world.log.at(-1), "end slack:U1:a")
      assert.deepStrictEqual(yield* sessions, [])
      yield* handle(message())
      assert.lengthOf(world.inputs, 2)
    })
  )

  it.effect("is refused at sessions_max, unless the longest idle one can be evicted", () =>
    Effect.gen(function* () {
      const { handle, reload, world } = yield* RouterWorld.make(text(", sessions_max: 2"))
      for (const senderId of ["1", "2"]) {
        yield* handle(message("ls", { senderId }))
        yield* TestClock.adjust("1 second")
      }
      const error = yield* Effect.flip(handle(message("ls", { senderId: "3" })))
      assert.include(error.message, "a: there are 2 sessions already")
      yield* reload(text(", sessions_max: 2, when_full: evict_idle"))
      yield* handle(message("ls", { senderId: "3" }))
      assert.deepStrictEqual(
        world.log.filter((line) => /^(?:make|end)/u.test(line)),
        ["make slack:1:a", "make slack:2:a", "end slack:1:a", "make slack:3:a"]
      )
    })
  )

  it.effect(
    "a session of an agent that was changed is recreated after its current messages; others stay",
    () =>
      Effect.gen(function* () {
        const gate = yield* Deferred.make<void>()
        const { handle, reload, world } = yield* RouterWorld.make(
          text("", "a: {system_prompt: one}, b: {}"),
          {
            script: ({ text }, { agent }) =>
              Effect.as(text === "wait" ? Deferred.await(gate) : Effect.void, agent.systemPrompt ?? "none")
          }
        )
        yield* handle(message("x", { senderId: "B" }))
        const running = yield* Effect.forkChild(handle(message("wait")), { startImmediately: true })
        const waiting = yield* Effect.forkChild(handle(message("x")), { startImmediately: true })
        yield* reload(text("", "a: {system_prompt: two}, b: {}"))
        const next = yield* Effect.forkChild(handle(message("x")), { startImmediately: true })
        yield* handle(message("x", { senderId: "B" }))
        assert.deepStrictEqual(world.log, ["make slack:B:b", "make slack:U1:a"])
        yield* Deferred.succeed(gate, undefined)
        // Each message uses the configuration that was active when it arrived.
        assert.strictEqual((yield* Fiber.join(running)).text, "one")
        assert.strictEqual((yield* Fiber.join(waiting)).text, "one")
        assert.strictEqual((yield* Fiber.join(next)).text, "two")
        assert.deepStrictEqual(world.log, [
          "make slack:B:b",
          "make slack:U1:a",
          "end slack:U1:a",
          "make slack:U1:a"
        ])
      })
  )

  it.effect("a session of another agent is a different session", () =>
    Effect.gen(function* () {
      const { handle, reload } = yield* RouterWorld.make(plain)
      assert.strictEqual((yield* handle(message())).key, "slack:U1:a")
      yield* reload(plain.replace("default_agent: a", "default_agent: b"))
      assert.strictEqual((yield* handle(message())).key, "slack:U1:b")
    })
  )

  it.effect("continues unchanged if the new configuration is invalid", () =>
    Effect.gen(function* () {
      const { handle, reload, world } = yield* RouterWorld.make(plain)
      yield* handle(message())
      yield* Effect.flip(reload("sandbox: {enabled: true}\n"))
      yield* handle(message())
      assert.lengthOf(world.inputs, 1)
    })
  )

  it.effect("gets the model of its agent's tier, if one is configured", () =>
    Effect.gen(function* () {
      const models = `${text("", "a: {model_tier: fast}, b: {model_tier: local}")}models: {fast: small, local: mine}\n`
      const { handle, reload, world } = yield* RouterWorld.make(models)
      yield* handle(message())
      yield* handle(message("ls", { senderId: "B" }))
      yield* reload(models.replace("fast: small", "fast: smaller"))
      yield* handle(message())
      assert.deepStrictEqual(
        world.inputs.map(({ model }) => model),
        ["small", "mine", "smaller"]
      )
    })
  )
})

describe("closing the router", () => {
  it.effect("ends all sessions and messages, within a bounded time", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { handle, world } = yield* RouterWorld.make(plain, {
        closeSecondsMax: 5,
        script: ({ text }) => (text === "hang" ? Effect.never : Effect.succeed("ok"))
      }).pipe(Scope.provide(scope))
      yield* handle(message("ok", { senderId: "U2" }))
      const running = yield* Effect.forkChild(handle(message("hang")), { startImmediately: true })
      yield* Scope.close(scope, Exit.void)
      const error = yield* Effect.flip(Fiber.join(running))
      assert.strictEqual(error.reason._tag, "RouterStopping")
      assert.isTrue(error.isRetryable)
      assert.sameMembers(
        world.log.filter((line) => line.startsWith("end")),
        ["end slack:U1:a", "end slack:U2:a"]
      )
      assert.strictEqual((yield* Effect.flip(handle(message()))).reason._tag, "RouterStopping")
    })
  )
})

describe("a message without an engine", () => {
  it.effect("refuses commands, gives the reason in the reply, and does not use the host", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(plain)
      world.trouble = engineGone
      const reply = yield* handle(message())
      assert.strictEqual(reply.text, "no: RuntimeUnavailable")
      assert.deepStrictEqual(
        [reply.executor, reply.fallback, reply.why],
        ["sandbox", false, engineGone.message]
      )
      assert.deepStrictEqual(
        world.said.filter((said) => said.startsWith("Error")),
        [`Error a has no sandbox for a message of "slack:U1:a": ${engineGone.message}`]
      )
      assert.notInclude(world.log.join(), "host")
      world.trouble = undefined
      assert.strictEqual((yield* handle(message())).text, "sandbox")
    })
  )

  it.effect(
    "uses the host if the configuration allows it, and reports this at startup, each time and in the reply",
    () =>
      Effect.gen(function* () {
        const { handle, world } = yield* RouterWorld.make(text(", on_unavailable: host"))
        assert.deepStrictEqual(world.said, [
          "Warn f.yaml:1:26 sandbox.on_unavailable: while the engine is absent, agents run on the host, without a sandbox"
        ])
        world.trouble = engineGone
        for (const _ of [1, 2]) {
          const reply = yield* handle(message())
          assert.deepStrictEqual(
            [reply.text, reply.executor, reply.fallback, reply.why, reply.runId],
            ["host", "host", true, engineGone.message, undefined]
          )
        }
        const said = `Warn a executes a message of "slack:U1:a" on the host, without a sandbox: ${engineGone.message}`
        assert.deepStrictEqual(world.said.slice(1), [said, said])
        world.trouble = undefined
        const reply = yield* handle(message())
        assert.deepStrictEqual([reply.text, reply.executor, reply.fallback], ["sandbox", "sandbox", false])
        assert.isUndefined(reply.why)
        // The session stays the same.
        assert.lengthOf(world.inputs, 1)
      })
  )

  const others: ReadonlyArray<readonly [string, SandboxError | SessionRefused]> = [
    [
      "a sandbox over the limit",
      new SessionRefused({ sessionId: "x", reason: "full", detail: "full", remedy: "Wait" })
    ],
    ["a missing image", new SandboxError({ reason: new ImageNotFound({ image: "x" }) })],
    [
      "a sandbox that fails its isolation check",
      new SandboxError({ reason: new PostureMismatch({ mismatches: ["x"] }) })
    ],
    ["a container that cannot be created", RouterWorld.noSandbox],
    [
      "an engine that is slow or disconnects",
      new SandboxError({ reason: new RuntimeUnavailable({ detail: "did not answer", remedy: "Look" }) })
    ]
  ]
  for (const [what, trouble] of others) {
    it.effect(`does not use the host instead of ${what}`, () =>
      Effect.gen(function* () {
        const { handle, world } = yield* RouterWorld.make(text(", on_unavailable: host"))
        world.trouble = trouble
        const reply = yield* handle(message())
        assert.deepStrictEqual(
          [reply.executor, reply.fallback, reply.why],
          ["sandbox", false, trouble.message]
        )
        assert.match(reply.text, /^no: /u)
        assert.notInclude(world.log.join(), "host")
      })
    )
  }

  it.effect("keeps the whole message in the place where it first executed", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(text(", on_unavailable: host"), {
        script: (_, { executor }) =>
          Effect.gen(function* () {
            const first = yield* executor.exec("1")
            world.trouble = world.trouble === undefined ? engineGone : undefined
            const second = yield* executor.exec("2")
            return `${first.output.stdout.text} ${second.output.stdout.text}`
          }).pipe(Effect.orDie)
      })
      assert.strictEqual((yield* handle(message())).text, "sandbox sandbox")
      assert.strictEqual((yield* handle(message())).text, "host host")
    })
  )

  it.effect("does not use the host without a host executor, and logs this at startup", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(text(", on_unavailable: host"), { host: false })
      assert.include(world.said.at(-1), "there is no host executor: while the engine is absent")
      world.trouble = engineGone
      const reply = yield* handle(message())
      assert.deepStrictEqual(
        [reply.executor, reply.fallback, reply.text],
        ["sandbox", false, "no: RuntimeUnavailable"]
      )
    })
  )
})

describe("an agent without a sandbox", () => {
  const off = text("", "a: {sandbox: false}, b: {}")

  it.effect("executes on the host, and the reply reports it", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(off)
      assert.deepStrictEqual(world.said, [
        "Warn f.yaml:2:21 agent_configs.a.sandbox: this agent runs on the host, if there is a host executor"
      ])
      const reply = yield* handle(message())
      assert.deepStrictEqual(
        [reply.text, reply.executor, reply.fallback, reply.why],
        ["host", "host", false, undefined]
      )
      assert.strictEqual(world.inputs[0]?.executor.workspace, "/srv/agents")
      assert.notInclude(world.log.join(), "sandbox")
      assert.strictEqual((yield* handle(message("ls", { senderId: "B" }))).executor, "sandbox")
      assert.strictEqual(world.inputs[1]?.executor.workspace, "/workspace")
    })
  )

  it.effect("is refused without a host executor, and this is logged at startup", () =>
    Effect.gen(function* () {
      const { handle, world } = yield* RouterWorld.make(off, { host: false })
      assert.strictEqual(world.said.at(-1), "Warn there is no host executor: messages for a are refused")
      const error = yield* Effect.flip(handle(message()))
      assert.strictEqual(error.reason._tag, "HostUnavailable")
      assert.include(error.message, "the agent a has sandbox: false, and there is no host executor")
      assert.deepStrictEqual(world.log, [])
      assert.strictEqual((yield* handle(message("ls", { senderId: "B" }))).executor, "sandbox")
    })
  )

  it.effect("is every agent if sandbox.enabled is false", () =>
    Effect.gen(function* () {
      const { handle, reload, world } = yield* RouterWorld.make(plain)
      yield* handle(message())
      yield* reload(plain.replace("enabled: true", "enabled: false"))
      const reply = yield* handle(message())
      assert.deepStrictEqual([reply.text, reply.executor, reply.fallback], ["host", "host", false])
      assert.isTrue(
        world.said.some((said) => said.includes("sandbox.enabled: no agent has a sandbox: all run on"))
      )
    })
  )

  it.effect("is refused without a host executor if sandbox.enabled is false", () =>
    Effect.gen(function* () {
      const { handle } = yield* RouterWorld.make(plain.replace("enabled: true", "enabled: false"), {
        host: false
      })
      assert.include(
        (yield* Effect.flip(handle(message()))).message,
        "sandbox.enabled is false, and there is no host"
      )
    })
  )
})

describe("the span of a message", () => {
  it.effect("has the agent, the place of execution, and whether the host replaced a sandbox", () =>
    Effect.gen(function* () {
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const { handle, world } = yield* RouterWorld.make(text(", on_unavailable: host"))
      yield* Effect.withTracer(handle(message("secret words")), tracer)
      world.trouble = engineGone
      yield* Effect.withTracer(handle(message("secret words")), tracer)
      const attributes = spans
        .filter(({ name }) => name === "MessageRouter.handle")
        .map((span) => Object.fromEntries(span.attributes))
      assert.deepStrictEqual(attributes, [
        {
          "gen_ai.agent.id": "a",
          "sandbox.executor": "sandbox",
          "sandbox.executor.fallback": false,
          "sandbox.run.id": RouterWorld.runId
        },
        { "gen_ai.agent.id": "a", "sandbox.executor": "host", "sandbox.executor.fallback": true }
      ])
      assert.notInclude(JSON.stringify(attributes), "secret")
    })
  )
})
