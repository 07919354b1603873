/** Tools whose calls wait for an approval, as a run's gateway calls them. */
import { ConnectionStoreUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as Approval from "@cogni/sandbox-core/Approval"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import * as ApprovalError from "@cogni/sandbox-core/ApprovalError"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Schema, Tracer } from "effect"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import type * as AuditEntry from "../src/AuditEntry.ts"
import * as ToolGateway from "../src/ToolGateway.ts"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")
const identity = { billingAccountId: "acct", attempt: 0, graphId: "sandbox:codex", userId: "ana" }
const by: Approval.Decider = { type: "operator", id: "ana" }
const ask: ReadonlyArray<ToolAccess.ToolRule> = [
  { tool: "**", access: "open" },
  { tool: "**", access: "ask" }
]
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

const inMemory = Effect.provide(Effect.service(Approvals.Approvals), Approvals.layerMemory)

interface Ran {
  readonly tool: string
  readonly requestId: string
  readonly text: string
}

/** A gateway whose tools record what they were called with. */
const make = Effect.fnUntraced(function* (
  request: ToolAccess.ToolRequest,
  effects: Readonly<Record<string, Tool.ToolEffect>> = { acme__pay: "external_side_effect" },
  given?: Approvals.ApprovalsShape
) {
  const ran: Array<Ran> = []
  const facts: Array<typeof AuditEntry.ToolCalled.Type> = []
  const ends: Array<Approval.Approval> = []
  const approvals = given ?? (yield* inMemory)
  const asked = yield* Deferred.make<Approval.Approval>()
  const gateway = yield* ToolGateway.make({
    runId,
    identity,
    request,
    tools: Object.entries(effects).map(([name, effect]) =>
      Tool.make({
        name,
        description: "Records its call",
        effect,
        input: Schema.Struct({ text: Schema.String }),
        output: Schema.String,
        execute: (input, { requestId }) =>
          Effect.sync(() => {
            ran.push({ tool: name, requestId, text: JSON.stringify(input) })
            return "done"
          })
      })
    ),
    approvals: {
      approvals,
      waitSecondsMax: 60,
      hasSecret: (text) => text.includes("canary"),
      witness: {
        requested: (approval) => Effect.asVoid(Deferred.succeed(asked, approval)),
        ended: (approval) => Effect.sync(() => void ends.push(approval))
      }
    },
    inspect: () => false,
    called: (fact) => void facts.push(fact)
  })
  const call = (input: unknown, tool = "acme__pay", requestId = "r1", gone?: Effect.Effect<void>) =>
    gateway.call({ requestId, via: "http", tool, input, gone })
  return { approvals, asked: Deferred.await(asked), call, ends, facts, gateway, ran }
})

const request = { tools: ["acme__pay"], rules: ask }

/** The user of a grant, as it is when it is read. */
const userOf = (
  read: () => Effect.Effect<
    { readonly revokedAt: Date | null; readonly expiresAt: Date | null },
    ConnectionStoreUnavailable
  >
): ConnectionUser => ({
  billingAccountId: "acct",
  authority: Effect.map(Effect.suspend(read), (grant) => ({
    ...grant,
    grantId: "grant-1",
    billingAccountId: "acct",
    rules: [],
    repositories: [],
    tools: []
  }))
})

describe("a tool that needs an approval", () => {
  it.effect("runs once with exactly the arguments that were approved", () =>
    Effect.gen(function* () {
      const { approvals, asked, call, ends, facts, ran } = yield* make(request)
      const input = { text: "3 EUR" }
      const fiber = yield* Effect.forkChild(call(input))
      const approval = yield* asked
      assert.deepStrictEqual(
        [approval.tool, approval.effect, approval.arguments, approval.argumentsDigest, approval.askedBy],
        [
          "acme__pay",
          "external_side_effect",
          '{"text":"3 EUR"}',
          sha256('{"text":"3 EUR"}'),
          { graphId: "sandbox:codex", userId: "ana" }
        ]
      )
      assert.deepStrictEqual(ran, [])
      input.text = "3000 EUR"
      yield* approvals.decide({ id: approval.id, decision: "approve", by })
      assert.strictEqual(yield* Fiber.join(fiber), "done")
      assert.deepStrictEqual(ran, [{ tool: "acme__pay", requestId: "r1", text: '{"text":"3 EUR"}' }])
      assert.deepStrictEqual(
        ends.map(({ status }) => status),
        ["approved"]
      )
      assert.deepStrictEqual(
        facts.map(({ argumentsDigest, outcome }) => [argumentsDigest, outcome]),
        [[approval.argumentsDigest, "ok"]]
      )
    })
  )

  it.effect("does not run if it is denied, or without a decision in time", () =>
    Effect.gen(function* () {
      const denied = yield* make(request)
      const fiber = yield* Effect.forkChild(Effect.flip(denied.call({ text: "" })))
      const { id } = yield* denied.asked
      yield* denied.approvals.decide({ id, decision: "deny", by, reason: "too much" })
      const refused = yield* Fiber.join(fiber)
      assert.strictEqual(refused.code, "policy_denied")
      assert.include(refused.message, "too much")
      const late = yield* make(request)
      const waiting = yield* Effect.forkChild(Effect.flip(late.call({ text: "" })))
      yield* late.asked
      yield* TestClock.adjust("60 seconds")
      const expired = yield* Fiber.join(waiting)
      assert.strictEqual(expired.code, "policy_denied")
      assert.include(expired.message, "in time")
      assert.deepStrictEqual([denied.ran, late.ran], [[], []])
      assert.deepStrictEqual(
        late.ends.map(({ status }) => status),
        ["expired"]
      )
    })
  )

  it.effect("does not run after its run has ended, and its approval is cancelled", () =>
    Effect.gen(function* () {
      const { approvals, asked, call, ends, facts, gateway, ran } = yield* make(request)
      const fiber = yield* Effect.forkChild(Effect.flip(call({ text: "" })))
      const { id } = yield* asked
      yield* gateway.close
      assert.strictEqual((yield* Fiber.join(fiber)).code, "unavailable")
      assert.deepStrictEqual(
        [ends.map(({ status }) => status), facts.map(({ outcome }) => outcome)],
        [["cancelled"], ["interrupted"]]
      )
      const error = yield* Effect.flip(approvals.decide({ id, decision: "approve", by }))
      assert.strictEqual(error._tag, "ApprovalOver")
      assert.deepStrictEqual(ran, [])
    })
  )

  it.effect("does not ask about a call that is invalid, too large, or contains a canary", () =>
    Effect.gen(function* () {
      const { approvals, call, ran } = yield* make(request)
      const { argumentsBytesMax } = Approval.limits
      const codes = yield* Effect.forEach(
        [{ text: 1 }, { text: "x".repeat(argumentsBytesMax) }, { text: "a canary" }],
        (input) => Effect.map(Effect.flip(call(input)), ({ code }) => code)
      )
      assert.deepStrictEqual(codes, ["validation", "validation", "policy_denied"])
      assert.deepStrictEqual([yield* approvals.list({}), ran], [[], []])
    })
  )

  it.effect("refuses a call beyond the limits of its run, without waiting", () =>
    Effect.gen(function* () {
      const { approvals, call, gateway } = yield* make(request)
      const { pendingPerRunMax, requestsPerRunMax } = Approval.limits
      for (let index = 0; index < pendingPerRunMax; index++)
        yield* Effect.forkChild(Effect.exit(call({ text: String(index) })), { startImmediately: true })
      const full = yield* Effect.flip(call({ text: "" }))
      assert.deepStrictEqual([full.code, full.message.includes("already")], ["unavailable", true])
      for (let index = pendingPerRunMax + 1; index < requestsPerRunMax; index++)
        yield* Effect.flip(call({ text: "" }))
      const last = yield* Effect.flip(call({ text: "" }))
      assert.deepStrictEqual([last.code, last.message.includes("maximum")], ["policy_denied", true])
      assert.strictEqual((yield* approvals.list({ status: "pending" })).length, pendingPerRunMax)
      yield* gateway.close
    })
  )

  it.effect("no longer waits when its client has gone, and nothing runs if it is approved then", () =>
    Effect.gen(function* () {
      const { approvals, asked, call, ends, ran } = yield* make(request)
      const gone = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        Effect.flip(call({ text: "" }, undefined, undefined, Deferred.await(gone)))
      )
      const { id } = yield* asked
      yield* Deferred.succeed(gone, undefined)
      assert.strictEqual((yield* Fiber.join(fiber)).code, "unavailable")
      assert.deepStrictEqual(
        ends.map(({ status }) => status),
        ["cancelled"]
      )
      const late = yield* Effect.flip(approvals.decide({ id, decision: "approve", by }))
      assert.strictEqual(late._tag, "ApprovalOver")
      assert.deepStrictEqual(ran, [])
    })
  )

  it.effect("is refused while the same call waits, and runs once if that one is approved", () =>
    Effect.gen(function* () {
      const { approvals, asked, call, ran } = yield* make(request)
      const first = yield* Effect.forkChild(call({ text: "3 EUR" }))
      const { id } = yield* asked
      const again = yield* Effect.flip(call({ text: "3 EUR" }, undefined, "r2"))
      assert.deepStrictEqual([again.code, again.message.includes("same arguments")], ["unavailable", true])
      yield* approvals.decide({ id, decision: "approve", by })
      yield* Fiber.join(first)
      assert.strictEqual(ran.length, 1)
      const later = yield* Effect.forkChild(Effect.exit(call({ text: "3 EUR" }, undefined, "r3")), {
        startImmediately: true
      })
      assert.strictEqual((yield* approvals.list({ status: "pending" })).length, 1, "a later one asks again")
      yield* Fiber.interrupt(later)
    })
  )

  it.effect("is refused without an approver, or if the approvals cannot be stored", () =>
    Effect.gen(function* () {
      const alone = yield* make(request, undefined, yield* Approvals.Approvals)
      assert.strictEqual((yield* Effect.flip(alone.call({ text: "" }))).code, "policy_denied")
      const memory = yield* inMemory
      const gone = yield* make(request, undefined, {
        ...memory,
        request: () =>
          Effect.fail(new ApprovalError.ApprovalsUnavailable({ detail: "is gone", remedy: "Start it" }))
      })
      assert.strictEqual((yield* Effect.flip(gone.call({ text: "" }))).code, "unavailable")
      assert.deepStrictEqual([alone.ran, gone.ran], [[], []])
    })
  )

  it.effect("does not run with an approval of other arguments", () =>
    Effect.gen(function* () {
      const memory = yield* inMemory
      const { call, ran } = yield* make(request, undefined, {
        ...memory,
        settled: (approval) =>
          Effect.succeed({ ...approval, status: "approved", argumentsDigest: sha256("{}") })
      })
      assert.strictEqual((yield* Effect.flip(call({ text: "" }))).code, "policy_denied")
      assert.deepStrictEqual(ran, [])
    })
  )

  it.effect("reports its decision in the span of the call", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      const approvals = yield* Effect.provide(
        Effect.service(Approvals.Approvals),
        Approvals.layerFunction(() => Effect.succeed({ decision: "approve" }), by)
      )
      const { call } = yield* make(request, undefined, approvals)
      yield* call({ text: "" }).pipe(Effect.provideService(Tracer.Tracer, tracer))
      const span = spans.find(({ name }) => name.startsWith("execute_tool"))
      assert.strictEqual(span?.attributes.get("sandbox.tool.approval"), "approved")
    })
  )

  const Names = Schema.Literals(["a__x", "a__y", "b__x"])
  const Calls = Schema.Array(
    Schema.Struct({
      tool: Names,
      text: Schema.Literals(["", "one", "two"]),
      answers: Schema.Array(
        Schema.Struct({
          decision: Schema.Literals(["approve", "deny"]),
          account: Schema.Literals(["acct", "other"])
        })
      ).check(Schema.isMaxLength(2))
    })
  ).check(Schema.isMaxLength(3))
  const Rules = Schema.Array(
    Schema.Struct({
      tool: Schema.Literals(["a__*", "**", "*__x", "b__x"]),
      effect: Schema.optionalKey(ToolAccess.ToolEffect),
      access: ToolAccess.Access
    })
  ).check(Schema.isMaxLength(3))

  it.effect.prop(
    "never runs outside grant ∩ request, nor without exactly one approval of those arguments",
    { tools: Schema.Array(Names).check(Schema.isMaxLength(3)), rules: Rules, calls: Calls },
    ({ calls, rules, tools }) =>
      Effect.gen(function* () {
        const effects = { a__x: "read_only", a__y: "state_change", b__x: "external_side_effect" } as const
        const memory = yield* inMemory
        let answers: (typeof Calls.Type)[number]["answers"] = []
        const approvals: Approvals.ApprovalsShape = {
          ...memory,
          request: (asked) =>
            Effect.tap(memory.request(asked), ({ id }) =>
              Effect.forEach(answers, ({ account, decision }) =>
                Effect.exit(memory.decide({ id, billingAccountId: account, decision, by }))
              )
            )
        }
        const { call, ran } = yield* make({ tools, rules }, effects, approvals)
        for (const [index, one] of calls.entries()) {
          answers = one.answers
          const fiber = yield* Effect.forkChild(
            Effect.exit(call({ text: one.text }, one.tool, `r${index}`)),
            {
              startImmediately: true
            }
          )
          yield* TestClock.adjust("60 seconds")
          yield* Fiber.join(fiber)
          const access = ToolAccess.decide({ tools, rules }, { name: one.tool, effect: effects[one.tool] })
          const first = one.answers.find(({ account }) => account === "acct")
          const mayRun = access === "open" || (access === "ask" && first?.decision === "approve")
          const own = ran.filter(({ requestId }) => requestId === `r${index}`)
          assert.strictEqual(own.length, mayRun ? 1 : 0, access)
          if (access !== "ask") continue
          const approved = (yield* memory.list({ status: "approved" })).filter(
            ({ requestId }) => requestId === `r${index}`
          )
          assert.strictEqual(approved.length, own.length)
          for (const { text } of own) assert.strictEqual(approved[0]?.argumentsDigest, sha256(text))
        }
      }),
    { arbitrary: { runs: 500, seed: "approvals-1" } }
  )

  it.effect("cancels its question when the grant of its run is revoked", () =>
    Effect.gen(function* () {
      const grant = { revokedAt: null as Date | null, expiresAt: null as Date | null }
      const { asked, call, ends, ran } = yield* make(request).pipe(
        Effect.provideService(
          ConnectionUser,
          userOf(() => Effect.succeed(grant))
        )
      )
      const fiber = yield* Effect.forkChild(Effect.flip(call({ text: "3 EUR" })))
      yield* asked
      grant.revokedAt = new Date(0)
      yield* TestClock.adjust("5 seconds")
      const { code, detail } = yield* Fiber.join(fiber)
      assert.strictEqual(code, "policy_denied")
      assert.include(detail, "revoked")
      assert.deepStrictEqual(
        ends.map(({ status }) => status),
        ["cancelled"]
      )
      assert.isEmpty(ran)
    })
  )

  it.effect.each(["revoked", "expired", "unreadable"] as const)(
    "does not run after an approval if the grant of its run is then %s",
    (how) =>
      Effect.gen(function* () {
        const grant = { revokedAt: null as Date | null, expiresAt: null as Date | null }
        let readable = true
        const { approvals, asked, call, ran } = yield* make(request).pipe(
          Effect.provideService(
            ConnectionUser,
            userOf(() =>
              readable
                ? Effect.succeed(grant)
                : Effect.fail(new ConnectionStoreUnavailable({ detail: "is gone", remedy: "Start it" }))
            )
          )
        )
        const fiber = yield* Effect.forkChild(Effect.flip(call({ text: "3 EUR" })))
        const { id } = yield* asked
        if (how === "revoked") grant.revokedAt = new Date(0)
        if (how === "expired") grant.expiresAt = new Date(0)
        if (how === "unreadable") readable = false
        yield* approvals.decide({ id, decision: "approve", by })
        const { code } = yield* Fiber.join(fiber)
        assert.strictEqual(code, how === "unreadable" ? "unavailable" : "policy_denied")
        assert.isEmpty(ran)
      })
  )
})
