/** Tests that a journal is read once for all who ask for the tools of its run. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalRequest, makeMemory, RunJournal } from "@cogni/sandbox-core/RunJournal"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { AuditHandlers } from "../src/internal/AuditHandlers.ts"
import * as AuditedCalls from "../src/internal/AuditedCalls.ts"
import * as CallHandlers from "../src/internal/CallHandlers.ts"
import type { RunHandlers } from "../src/internal/RunHandlers.ts"

const idOf = (n: number) => RunId.make(`run-callhandler${n}`)

const world = Effect.gen(function* () {
  const memory = yield* makeMemory
  const reads: Array<number> = []
  const journal = {
    ...memory,
    read: (request: JournalRequest) =>
      Effect.suspend(() => {
        reads.push(request.after ?? 0)
        return memory.read(request)
      })
  }
  const own = {
    lookUp: (id: string) => Effect.succeed({ runId: RunId.make(id), here: undefined, record: undefined })
  } as unknown as RunHandlers
  const { tools } = yield* CallHandlers.make(own, {} as AuditHandlers).pipe(
    Effect.provideService(RunJournal, journal)
  )
  const call = (runId: RunId, toolCallId: string) =>
    Effect.andThen(
      journal.write(runId, { type: "tool.started", toolCallId, tool: "read", arguments: "{}" }),
      journal.write(runId, { type: "tool.ended", toolCallId, isError: false, result: "x".repeat(9000) })
    )
  const listed = (runId: RunId) =>
    Effect.map(tools(runId), ({ tools, truncated }) => [
      ...tools.map((one) => (one.source === "agent" ? one.toolCallId : "")),
      ...(truncated ? ["more"] : [])
    ])
  return {
    call,
    journal,
    listed: listed as unknown as (runId: RunId) => Effect.Effect<ReadonlyArray<string>>,
    reads
  }
})

describe("the calls of a run whose audit this server does not have", () => {
  const listsOf = (found: object, audited: unknown) =>
    Effect.gen(function* () {
      const own = { lookUp: () => Effect.succeed({ runId: idOf(1), ...found }) } as unknown as RunHandlers
      const audit = { calls: () => Effect.succeed(audited) } as unknown as AuditHandlers
      const { calls, tools } = yield* CallHandlers.make(own, audit)
      const both = Effect.all([calls(idOf(1), {}), tools(idOf(1))])
      const [models, called] = yield* both as unknown as Effect.Effect<
        readonly [{ readonly isElsewhere?: true }, { readonly isElsewhere?: true }]
      >
      return [models.isElsewhere, called.isElsewhere]
    }).pipe(Effect.provideServiceEffect(RunJournal, makeMemory))

  it.effect("are reported as elsewhere, unless the run is here or has none", () =>
    Effect.gen(function* () {
      const running = { outcome: { status: "running" } }
      const ended = { outcome: { status: "exited" }, llm: { calls: [], callsTotal: 0 } }
      const audited = { ...ended, llm: { ...ended.llm, auditHead: "a" } }
      assert.deepStrictEqual(yield* listsOf({ record: running }, undefined), [true, true])
      assert.deepStrictEqual(yield* listsOf({ record: audited }, undefined), [undefined, true])
      for (const [found, calls] of [
        [{ record: running, here: {} }, undefined],
        [{ record: running }, AuditedCalls.make()],
        [{ record: ended }, undefined],
        [{ record: undefined }, undefined]
      ] as const)
        assert.deepStrictEqual(yield* listsOf(found, calls), [undefined, undefined])
    })
  )
})

describe("the tools that an agent reports", () => {
  it.effect("are read once, and later only what is new", () =>
    Effect.gen(function* () {
      const { call, journal, listed, reads } = yield* world
      const runId = idOf(1)
      yield* journal.write(runId, { type: "run.started" })
      yield* call(runId, "a")
      const all = yield* Effect.all([listed(runId), listed(runId)], { concurrency: "unbounded" })
      assert.deepStrictEqual(all, [["a"], ["a"]])
      // From the beginning, and then after the third entry until there is no more.
      assert.deepStrictEqual(reads, [0, 3, 3])
      yield* call(runId, "b")
      assert.deepStrictEqual(yield* listed(runId), ["a", "b"])
      assert.deepStrictEqual(reads.slice(3), [3, 5])
    })
  )

  it.effect("are remembered of a few runs, and read again of others", () =>
    Effect.gen(function* () {
      const { call, journal, listed, reads } = yield* world
      for (let n = 0; n < 9; n++) {
        yield* journal.write(idOf(n), { type: "run.started" })
        yield* call(idOf(n), `call-${n}`)
        assert.deepStrictEqual(yield* listed(idOf(n)), [`call-${n}`])
      }
      reads.length = 0
      assert.deepStrictEqual(yield* listed(idOf(8)), ["call-8"])
      assert.deepStrictEqual(yield* listed(idOf(0)), ["call-0"])
      assert.deepStrictEqual(reads, [3, 0, 3])
    })
  )
})
