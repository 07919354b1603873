/** The contract of every `RunStore`: an ID belongs to one run permanently, and the final record replaces the first. */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { longAnnotations } from "../RunFacts.ts"
import * as RunId from "../RunId.ts"
import type { RunFilter, RunSearch } from "../RunSearch.ts"
import { type OpenRun, RunStore } from "../RunStore.ts"
import { briefOf, withoutText } from "../RecordForms.ts"
import { type RunRecord } from "../RunRecord.ts"
import type * as SandboxSpec from "../SandboxSpec.ts"
import * as SpecDecoder from "../SpecDecoder.ts"

const spec = SpecDecoder.decode({ image: "contract", argv: ["true"], env: { LANG: "C.UTF-8" } })

const opened = (runId: RunId.RunId) =>
  Effect.flatMap(Effect.all([RunStore, spec]), ([store, spec]) => store.open(runId, spec))

const finished = (runId: RunId.RunId, open: OpenRun, spec: SandboxSpec.SandboxSpec): RunRecord => ({
  runId,
  spec,
  owner: open.owner,
  startedAt: new Date(1_000).toISOString(),
  endedAt: new Date(2_000).toISOString(),
  outcome: {
    status: "failed",
    reason: "TimedOut",
    code: "timeout",
    message: "the agent was still running ☃"
  },
  timings: [{ phase: "create", durationMs: 12.5 }]
})

export const suite = <E>(name: string, layer: Layer.Layer<RunStore, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`RunStore (${name})`, (it) => {
    it.effect("records an open run as running", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runId = yield* RunId.generate
        const { owner } = yield* opened(runId)
        const record = yield* store.get(runId)
        assert.deepStrictEqual(record?.outcome, { status: "running" })
        assert.deepStrictEqual(record?.spec, yield* spec)
        assert.strictEqual(record?.owner, owner)
        assert.isUndefined(record?.endedAt)
      })
    )

    it.effect("refuses an ID that is in use, or was used before", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const again = Effect.flip(Effect.scoped(opened(runId)))
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* opened(runId)
            assert.strictEqual((yield* again)._tag, "RunIdInUse")
          })
        )
        const error = yield* again
        assert.strictEqual(error._tag, "RunIdInUse")
        assert.include(error.message, runId)
      })
    )

    it.effect("adds annotations to a run that has ended, and changes nothing else", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runId = yield* RunId.generate
        const before = finished(runId, { owner: "nobody/1/0", save: () => Effect.void }, yield* spec)
        yield* Effect.scoped(
          Effect.flatMap(opened(runId), (open) => open.save({ ...before, owner: open.owner }))
        )
        yield* store.annotate(runId, { relay: { branch: "sandbox/a" }, other: 1 })
        yield* store.annotate(runId, { relay: { branch: "sandbox/b", tip: null } })
        const record = yield* store.get(runId)
        assert.deepStrictEqual(record?.annotations, {
          relay: { branch: "sandbox/b", tip: null },
          other: 1
        })
        assert.deepStrictEqual(record?.outcome, before.outcome)
        // Commits and answers can be long, so only `get` returns them.
        for (const name of longAnnotations) {
          yield* store.annotate(runId, { [name]: "diff --git" })
          assert.strictEqual((yield* store.get(runId))?.annotations?.[name], "diff --git")
        }
        for (const short of [
          yield* store.describe(runId),
          (yield* store.list).find((one) => one.runId === runId)
        ])
          assert.deepStrictEqual(short?.annotations, record?.annotations)
        // A run without a record gets no annotations.
        const unknown = yield* RunId.generate
        yield* store.annotate(unknown, { relay: 1 })
        assert.isUndefined(yield* store.get(unknown))
      })
    )

    it.effect("recovers no run of a living process, and settles a run any number of times", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runId = yield* RunId.generate
        const token = crypto.randomUUID()
        const observed = { token, virtualKeyId: "vk", grantId: "g", requestId: "r", ingressRequestId: "i" }
        const llm = { model: "m", identity: { billingAccountId: "acct", attempt: 0 }, observed }
        const observing = yield* SpecDecoder.decode({ image: "contract", argv: ["true"], llm })
        yield* store.open(runId, observing)
        let told = 0
        assert.deepStrictEqual(yield* store.recover(() => Effect.sync(() => void (told += 1))), [])
        assert.strictEqual(told, 0)
        yield* store.settle(runId, token)
        yield* store.settle(runId, token)
        yield* store.settle(yield* RunId.generate, token)
      })
    )

    it.effect("gives an ID to exactly one of many concurrent callers", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const exits = yield* Effect.all(
          Array.from({ length: 16 }, () => Effect.exit(opened(runId))),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(exits.filter((exit) => exit._tag === "Success").length, 1)
      })
    )

    it.effect("keeps the complete final record after the scope is closed", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runId = yield* RunId.generate
        const record = yield* Effect.scoped(
          Effect.gen(function* () {
            const open = yield* opened(runId)
            const record = finished(runId, open, yield* spec)
            yield* open.save(record)
            return record
          })
        )
        assert.deepStrictEqual(yield* store.get(runId), record)
        assert.deepStrictEqual(yield* store.describe(runId), withoutText(record))
      })
    )

    it.effect("returns nothing for an ID that no run has had", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runId = yield* RunId.generate
        assert.isUndefined(yield* store.get(runId))
        assert.isUndefined(yield* store.describe(runId))
      })
    )

    it.effect("lists every run once, newest first", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const runIds = [yield* RunId.generate, yield* RunId.generate, yield* RunId.generate]
        for (const runId of runIds) {
          yield* opened(runId)
          yield* Effect.sleep("5 millis")
        }
        const listed = (yield* store.list)
          .map((record) => record.runId)
          .filter((runId) => runIds.includes(runId))
        assert.deepStrictEqual(listed, runIds.toReversed())
      })
    )

    it.effect("finds the runs of an account by what is known of them, page by page", () =>
      Effect.gen(function* () {
        const store = yield* RunStore
        const account = crypto.randomUUID()
        const made: Array<RunId.RunId> = []
        for (const model of ["a", "b\0☃", "b\0☃", "b\0☃"]) {
          const runId = yield* RunId.generate
          const asked = yield* SpecDecoder.decode({
            image: "contract",
            argv: ["true"],
            llm: { model, identity: { billingAccountId: account, agentId: "codex", sessionId: "s" } }
          })
          const open = yield* store.open(runId, asked)
          const startedAt = new Date(1_000 * (made.length + 1)).toISOString()
          if (made.length !== 3) yield* open.save({ ...finished(runId, open, asked), startedAt })
          made.push(runId)
        }
        const [first, second, third, running] = made
        const ids = (filter: RunFilter, page: Omit<RunSearch, "filter"> = {}) =>
          Effect.map(
            store.search({ ...page, filter: { billingAccountId: account, ...filter } }),
            ({ records }) => records.map(({ runId }) => runId)
          )
        assert.deepStrictEqual(yield* ids({}), [running, third, second, first])
        assert.deepStrictEqual(yield* ids({ states: ["failed"], reasons: ["TimedOut"] }), [
          third,
          second,
          first
        ])
        assert.deepStrictEqual(yield* ids({ states: ["running"] }), [running])
        assert.deepStrictEqual(yield* ids({ states: [] }), [])
        assert.deepStrictEqual(yield* ids({ model: "b\0☃", agentId: "codex", sessionId: "s" }), [
          running,
          third,
          second
        ])
        assert.deepStrictEqual(
          yield* ids({ from: new Date(2_000).toISOString(), to: new Date(3_000).toISOString() }),
          [second]
        )
        assert.deepStrictEqual(yield* ids({ costUsdMin: 0 }), [])
        // A judgement that comes after the run counts as well.
        const graph = { ok: false, reason: "AgentFailed", graphId: "sandbox:codex", grantId: "grant" }
        yield* store.annotate(first!, { graph, relay: { origin: "https://git.example/a" } })
        assert.deepStrictEqual(
          yield* ids({ reasons: ["AgentFailed"], repository: "https://git.example/a" }),
          [first]
        )
        assert.deepStrictEqual(yield* ids({ grantId: "grant", graphId: "sandbox:codex" }), [first])
        const page = yield* store.search({ filter: { billingAccountId: account }, limit: 3 })
        assert.deepStrictEqual(page.next, { startedAt: page.records[2]!.startedAt, runId: second })
        assert.deepStrictEqual(yield* ids({}, { limit: 3, after: page.next }), [first])
      })
    )

    it.effect(
      "returns of a search only what lists show: no inputs, variables, arguments and other notes",
      () =>
        Effect.gen(function* () {
          const store = yield* RunStore
          const [runId, account] = [yield* RunId.generate, crypto.randomUUID()]
          const asked = yield* SpecDecoder.decode({
            image: "contract",
            argv: ["agent", "a long prompt"],
            env: { LANG: "C.UTF-8" },
            inputs: [{ name: "messages.json", content: "a long input" }],
            llm: { model: "a", identity: { billingAccountId: account } }
          })
          yield* Effect.scoped(
            Effect.flatMap(store.open(runId, asked), (open) => open.save(finished(runId, open, asked)))
          )
          yield* store.annotate(runId, { relay: { origin: "https://git.example/a" }, changes: ["many"] })
          const { records } = yield* store.search({ filter: { billingAccountId: account } })
          const described = yield* store.describe(runId)
          assert.deepStrictEqual(described?.spec, asked)
          assert.deepStrictEqual(records, [briefOf(described!)])
          assert.deepStrictEqual(records[0]?.spec, { ...asked, argv: ["agent"], env: {}, inputs: [] })
          assert.deepStrictEqual(records[0]?.annotations, { relay: { origin: "https://git.example/a" } })
        })
    )
  })
