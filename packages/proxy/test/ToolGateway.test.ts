import { assert, describe, it } from "@effect/vitest"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Context, Deferred, Effect, Exit, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import * as AuditEntry from "../src/AuditEntry.ts"
import * as ToolGateway from "../src/ToolGateway.ts"

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")
const identity = { billingAccountId: "acct", attempt: 2 }

const echo = (
  name: string,
  execute: (text: string, context: Tool.ToolContext) => Effect.Effect<string, Tool.ToolFailed>,
  effect: Tool.ToolEffect = "read_only"
) =>
  Tool.make({
    name,
    description: "Says it again",
    effect,
    input: Schema.Struct({ text: Schema.String }),
    output: Schema.String,
    runtimeSecondsMax: 5,
    execute: ({ text }, context) => execute(text, context)
  })

const make = Effect.fnUntraced(function* (
  tools: ReadonlyArray<Tool.Tool>,
  options: Partial<ToolGateway.ToolGatewayOptions> = {}
) {
  const facts: Array<typeof AuditEntry.ToolCalled.Type> = []
  const gateway = yield* ToolGateway.make({
    runId,
    identity,
    tools,
    request: { tools: tools.map(({ name }) => name) },
    approvals: {
      approvals: yield* Approvals,
      waitSecondsMax: 60,
      witness: { requested: () => Effect.void, ended: () => Effect.void },
      hasSecret: () => false
    },
    inspect: () => false,
    called: (fact) => void facts.push(fact),
    ...options
  })
  const call = (tool: string, input: unknown, over: Partial<ToolGateway.ToolCall> = {}) =>
    gateway.call({ requestId: "r1", via: "http", tool, input, ...over })
  return { gateway, facts, call, refused: (...given: Parameters<typeof call>) => Effect.flip(call(...given)) }
})

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

/** Something that is provided around a run, such as the user of its connections. */
const RunUser = Context.Reference("test/RunUser", { defaultValue: () => "nobody" })

describe("ToolGateway", () => {
  it.effect("calls a tool with what was provided around its run, whichever fiber serves the call", () =>
    Effect.gen(function* () {
      const who = echo("test__who", () => Effect.service(RunUser))
      const first = yield* Effect.provideService(make([who]), RunUser, "ana")
      const second = yield* Effect.provideService(make([who]), RunUser, "ben")
      const calls = Effect.all([
        first.call("test__who", { text: "" }),
        second.call("test__who", { text: "" })
      ])
      assert.deepStrictEqual(yield* calls, ["ana", "ben"])
      assert.deepStrictEqual(yield* Effect.provideService(calls, RunUser, "mallory"), ["ana", "ben"])
    })
  )

  it.effect("calls a tool for its run, and records it with sizes and digests", () =>
    Effect.gen(function* () {
      let seen: Tool.ToolContext | undefined
      const { call, facts } = yield* make([
        echo("test__echo", (text, context) => {
          seen = context
          return Effect.succeed(`${text}ü`)
        })
      ])
      assert.strictEqual(yield* call("test__echo", { text: "abc" }, { via: "mcp", runId }), "abcü")
      assert.deepStrictEqual(seen, { runId, identity, requestId: "r1" })
      const { durationMs, ...fact } = facts[0]!
      assert.isAtLeast(durationMs, 0)
      assert.deepStrictEqual(fact, {
        type: "tool.called",
        requestId: "r1",
        tool: "test__echo",
        effect: "read_only",
        via: "mcp",
        argumentsBytes: 14,
        argumentsDigest: sha256('{"text":"abc"}'),
        outcome: "ok",
        resultBytes: 7,
        resultDigest: sha256('"abcü"')
      })
      assert.notInclude(JSON.stringify(facts), "abc")
    })
  )

  it.effect("records every outcome of a call once, in the format of the audit", () =>
    Effect.gen(function* () {
      const codes = ["execution", "unavailable", "redaction_failed", "invalid_json"] as const
      const started = yield* Deferred.make<void>()
      const { call, facts, refused } = yield* make([
        ...codes.map((code) =>
          echo(`test__${code}`, () => Effect.fail(new Tool.ToolFailed({ code, detail: "no" })))
        ),
        echo("test__defect", () => Effect.die(new Error("inside"))),
        echo("test__never", () => Effect.never),
        echo("test__stuck", () => Effect.andThen(Deferred.succeed(started, undefined), Effect.never))
      ])
      for (const code of codes) assert.strictEqual((yield* refused(`test__${code}`, { text: "" })).code, code)
      assert.strictEqual((yield* refused("test__defect", { text: "" })).code, "execution")
      assert.strictEqual((yield* refused("test__defect", { text: 1 })).code, "validation")
      assert.strictEqual((yield* refused("test__other", {})).code, "policy_denied")
      const late = yield* Effect.forkChild(refused("test__never", { text: "" }), { startImmediately: true })
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual((yield* Fiber.join(late)).code, "timeout")
      const stuck = yield* Effect.forkChild(call("test__stuck", { text: "" }))
      yield* Deferred.await(started)
      yield* Fiber.interrupt(stuck)
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(stuck)))
      assert.deepStrictEqual(
        facts.map(({ outcome }) => outcome),
        [...codes, "execution", "validation", "policy_denied", "timeout", "interrupted"]
      )
      for (const fact of facts) Schema.decodeUnknownSync(AuditEntry.ToolCalled)(fact)
    })
  )

  it.effect("refuses a missing tool and one that is not allowed in the same way", () =>
    Effect.gen(function* () {
      const tools = [
        echo("test__here", Effect.succeed),
        echo("test__held", Effect.succeed, "external_side_effect")
      ]
      const { facts, gateway, refused } = yield* make(tools, { request: { tools: ["test__here"] } })
      assert.deepStrictEqual(gateway.allowed, tools.slice(0, 1))
      const said = yield* Effect.forEach(["test__held", "test__none"], (name) =>
        Effect.map(refused(name, { text: "" }), ({ code, message }) => `${code} ${message.replace(name, "")}`)
      )
      assert.strictEqual(new Set(said).size, 1)
      assert.deepStrictEqual(
        facts.map(({ effect }) => effect),
        ["external_side_effect", undefined]
      )
      assert.isAtMost((yield* refused("x".repeat(100_000), {})).message.length, 300)
      assert.strictEqual(facts.at(-1)!.tool.length, 100)
    })
  )

  it.effect("refuses a call for another run, or with arguments that are too large", () =>
    Effect.gen(function* () {
      let calls = 0
      const { call, refused } = yield* make([
        echo("test__echo", () => {
          calls += 1
          return Effect.succeed("")
        })
      ])
      const another = yield* refused("test__echo", { text: "" }, { runId: "run-000000000000" })
      assert.strictEqual(another.code, "policy_denied")
      assert.match(another.message, /another run/u)
      const around = Buffer.byteLength(JSON.stringify({ text: "" }))
      // Each letter has two bytes, so a limit in letters would allow this.
      const large = { text: "ü".repeat((ToolGateway.argumentsBytesMax - around) / 2) }
      const tooLarge = yield* refused("test__echo", { text: `${large.text}xx` })
      assert.strictEqual(tooLarge.code, "validation")
      assert.strictEqual(calls, 0)
      yield* call("test__echo", large)
      assert.strictEqual(calls, 1)
    })
  )

  it.effect("refuses arguments that must not leave the sandbox", () =>
    Effect.gen(function* () {
      let calls = 0
      const looked: Array<string> = []
      const { call, facts, refused } = yield* make(
        [
          echo("test__echo", () => {
            calls += 1
            return Effect.succeed("")
          })
        ],
        {
          inspect: (text, requestId) => {
            looked.push(`${requestId} ${text}`)
            return text.includes("canary")
          }
        }
      )
      const error = yield* refused("test__echo", { text: "a canary of the run" })
      assert.strictEqual(error.code, "policy_denied")
      assert.notInclude(error.message, "canary")
      assert.deepStrictEqual(looked, ['r1 {"text":"a canary of the run"}'])
      assert.strictEqual(calls, 0)
      yield* refused("test__other", { text: "another canary" })
      assert.strictEqual(looked.length, 2, "a call of a tool that does not exist is inspected too")
      assert.notInclude(JSON.stringify(facts), "canary")
      yield* call("test__echo", { text: "" })
      assert.strictEqual(calls, 1)
    })
  )

  it.effect("limits concurrent calls, makes the others wait, and frees a turn however a call ends", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      let active = 0
      let most = 0
      const held = echo("test__held", (text) =>
        Effect.acquireUseRelease(
          Effect.sync(() => {
            active += 1
            most = Math.max(most, active)
          }),
          () =>
            text === "fail"
              ? Effect.fail(new Tool.ToolFailed({ code: "execution", detail: "no" }))
              : Effect.as(Deferred.await(gate), text),
          () =>
            Effect.sync(() => {
              active -= 1
            })
        )
      )
      const { call, facts, refused } = yield* make([held], { concurrentMax: 2 })
      for (let index = 0; index < 3; index++) yield* refused("test__held", { text: "fail" })
      const start = (text: string) =>
        Effect.forkChild(call("test__held", { text }), { startImmediately: true })
      const gone = yield* start("gone")
      const fibers = yield* Effect.forEach(["a", "b", "c", "d"], start)
      assert.strictEqual(active, 2)
      yield* Fiber.interrupt(gone)
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(yield* Effect.forEach(fibers, Fiber.join), ["a", "b", "c", "d"])
      assert.strictEqual(most, 2)
      assert.strictEqual(active, 0)
      assert.strictEqual(facts.length, 8)
    })
  )
})
