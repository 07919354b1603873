/** The contract of every `Approvals`: one decision, by the account or the operator, and a denial without one. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer } from "effect"
import * as Approval from "../Approval.ts"
import { type ApprovalsShape, Approvals } from "../Approvals.ts"
import { ask } from "../ApprovalWitness.ts"
import * as RunId from "../RunId.ts"

const by: Approval.Decider = { type: "grant", id: "grant-1" }

/** A text that a store may not handle: markup, NUL, half a character, and one beyond 16 bits. */
const hostile = '<b onload="x">\u0000\ud800\u{1F600}\u202e\u001b[2J'

/** A request of a new account, with the given changes. */
const requestOf = Effect.fnUntraced(function* (changes: Partial<Approval.ApprovalRequest> = {}) {
  const text = JSON.stringify({ text: hostile })
  return {
    runId: yield* RunId.generate,
    billingAccountId: `acct-${crypto.randomUUID()}${"\u0000"}`,
    requestId: `req-${hostile.toWellFormed()}`,
    tool: "acme__pay",
    effect: "external_side_effect",
    arguments: text,
    argumentsDigest: "d".repeat(64),
    askedBy: { graphId: "sandbox:codex", userId: "ana" },
    waitSecondsMax: 60,
    ...changes
  } satisfies Approval.ApprovalRequest
})

/** Asks in the background. Returns the pending approval, and what the witness heard. */
const asking = Effect.fnUntraced(function* (
  approvals: ApprovalsShape,
  changes?: Partial<Approval.ApprovalRequest>
) {
  const begun = yield* Deferred.make<Approval.Approval>()
  const heard: Array<Approval.Approval> = []
  const request = yield* requestOf(changes)
  const fiber = yield* Effect.forkChild(
    ask(approvals, request, {
      requested: (approval) => Effect.asVoid(Deferred.succeed(begun, approval)),
      ended: (approval) => Effect.sync(() => void heard.push(approval))
    })
  )
  return { approval: yield* Deferred.await(begun), fiber, heard, request }
})

export const suite = <E>(name: string, layer: Layer.Layer<never, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`Approvals (${name})`, (it) => {
    it.effect("shows a waiting call whole to its account, and wakes it with the decision", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber, heard, request } = yield* asking(approvals)
        const { billingAccountId } = request
        const { waitSecondsMax: _, ...shown } = request
        assert.deepStrictEqual(approval, { ...approval, ...shown, status: "pending" })
        for (const filter of [
          { billingAccountId },
          { runId: request.runId },
          { billingAccountId, status: "pending" as const }
        ])
          assert.deepStrictEqual(yield* approvals.list(filter), [approval])
        const decided = yield* approvals.decide({
          id: approval.id,
          billingAccountId,
          decision: "approve",
          by,
          reason: hostile
        })
        assert.deepStrictEqual([decided.status, decided.decidedBy, decided.reason], ["approved", by, hostile])
        assert.deepStrictEqual(yield* Fiber.join(fiber), decided)
        assert.deepStrictEqual(heard, [decided])
        assert.deepStrictEqual(yield* approvals.list({ billingAccountId, status: "pending" }), [])
        assert.deepStrictEqual(yield* approvals.list({ billingAccountId, status: "approved" }), [decided])
      })
    )

    it.effect("counts the first of many decisions, and tells the others what was decided", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber } = yield* asking(approvals)
        const answers = yield* Effect.forEach(
          [0, 1, 2, 3, 4, 5, 6, 7],
          (index) =>
            approvals
              .decide({
                id: approval.id,
                decision: index % 2 === 0 ? "approve" : "deny",
                by: { type: "operator", id: String(index) }
              })
              .pipe(
                Effect.map((decided) => ({ decided, isFirst: true })),
                Effect.catchTag("ApprovalOver", (over) =>
                  Effect.succeed({ decided: over.approval, isFirst: false })
                )
              ),
          { concurrency: "unbounded" }
        )
        const end = yield* Fiber.join(fiber)
        assert.strictEqual(answers.filter(({ isFirst }) => isFirst).length, 1)
        for (const { decided } of answers) assert.deepStrictEqual(decided, end)
      })
    )

    it.effect("lists the calls that wait from the oldest, and all others from the newest", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { billingAccountId, ...request } = yield* requestOf()
        const first = yield* approvals.request({ ...request, billingAccountId })
        const second = yield* approvals.request({ ...request, billingAccountId })
        const ids = (filter: Approval.ApprovalFilter) =>
          Effect.map(approvals.list({ billingAccountId, ...filter }), (found) => found.map(({ id }) => id))
        assert.deepStrictEqual(yield* ids({ status: "pending" }), [first.id, second.id])
        assert.deepStrictEqual(yield* ids({}), [second.id, first.id])
        assert.deepStrictEqual(yield* ids({ status: "pending", after: first.id }), [second.id])
        assert.deepStrictEqual(yield* ids({ after: second.id }), [first.id])
        assert.deepStrictEqual(yield* ids({ after: first.id }), [])
        assert.deepStrictEqual(yield* ids({ after: "apr-unknown" }), [])
        assert.deepStrictEqual(yield* ids({ idPrefix: first.id.slice(0, 20) }), [first.id])
        assert.deepStrictEqual(yield* ids({ idPrefix: "%" }), [])
        for (const one of [first, second]) yield* approvals.close(one, "cancelled")
      })
    )

    it.effect("answers another account as if the approval did not exist", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber } = yield* asking(approvals)
        const other = { billingAccountId: "acct-other" }
        assert.deepStrictEqual(yield* approvals.list({ ...other, runId: approval.runId }), [])
        const refused = yield* Effect.forEach(
          [approval.id, `apr-${crypto.randomUUID()}`, "'; --", ""],
          (id) => Effect.flip(approvals.decide({ id, ...other, decision: "approve", by }))
        )
        assert.deepStrictEqual(
          refused.map(({ _tag, message }) => `${_tag} ${message}`),
          Array.from({ length: 4 }, () => `ApprovalNotFound ${refused[0]!.message}`)
        )
        const denied = yield* approvals.decide({ id: approval.id, decision: "deny", by })
        assert.strictEqual(denied.status, "denied", "the operator may decide for every account")
        yield* Fiber.join(fiber)
        const late = yield* Effect.flip(
          approvals.decide({ id: approval.id, ...other, decision: "approve", by })
        )
        assert.strictEqual(late._tag, "ApprovalNotFound")
      })
    )

    it.effect("denies a call without a decision in time, and then accepts none", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber, heard } = yield* asking(approvals, { waitSecondsMax: 0.05 })
        assert.strictEqual((yield* Fiber.join(fiber)).status, "expired")
        assert.deepStrictEqual(
          heard.map(({ status }) => status),
          ["expired"]
        )
        const late = yield* Effect.flip(approvals.decide({ id: approval.id, decision: "approve", by }))
        assert.strictEqual(late._tag, "ApprovalOver")
        const [listed] = yield* approvals.list({ runId: approval.runId, status: "expired" })
        assert.strictEqual(listed?.status, "expired")
      })
    )

    it.effect("denies a call whose run ends while it waits", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber, heard } = yield* asking(approvals)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(
          heard.map(({ status }) => status),
          ["cancelled"]
        )
        const late = yield* Effect.flip(approvals.decide({ id: approval.id, decision: "approve", by }))
        assert.strictEqual(late._tag, "ApprovalOver")
      })
    )

    it.effect("keeps the end of an approval that is closed again", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const { approval, fiber } = yield* asking(approvals)
        const decided = yield* approvals.decide({ id: approval.id, decision: "approve", by })
        yield* Fiber.join(fiber)
        assert.deepStrictEqual(yield* approvals.close(approval, "cancelled"), decided)
      })
    )

    it.effect("limits the waiting calls of a run and of an account", () =>
      Effect.gen(function* () {
        const approvals = yield* Approvals
        const first = yield* requestOf()
        const { billingAccountId } = first
        const { pendingPerAccountMax, pendingPerRunMax } = Approval.limits
        const ask = (count: number, request: Approval.ApprovalRequest) =>
          Effect.forEach(Array.from({ length: count }), () => Effect.result(approvals.request(request)))
        const ofRun = yield* ask(pendingPerRunMax + 1, first)
        assert.strictEqual(ofRun.filter(({ _tag }) => _tag === "Success").length, pendingPerRunMax)
        const more: Array<string> = []
        for (let runs = 1; runs <= pendingPerAccountMax / pendingPerRunMax; runs++) {
          const answers = yield* ask(pendingPerRunMax, yield* requestOf({ billingAccountId }))
          more.push(...answers.map(({ _tag }) => _tag))
        }
        assert.strictEqual(
          more.filter((tag) => tag === "Success").length,
          pendingPerAccountMax - pendingPerRunMax
        )
        const full = yield* Effect.flip(approvals.request(yield* requestOf({ billingAccountId })))
        assert.strictEqual(full._tag === "ApprovalRefused" ? full.reason : full._tag, "account_full")
        yield* approvals.request(yield* requestOf())
        const listed = yield* approvals.list({ billingAccountId, status: "pending" })
        yield* Effect.forEach(listed, (approval) => approvals.close(approval, "cancelled"))
        yield* approvals.request(first)
      })
    )
  })
