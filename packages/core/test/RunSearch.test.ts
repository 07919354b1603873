/** Tests which runs a search selects, and that its pages together are the whole list. */
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunSearch from "@cogni/sandbox-core/RunSearch"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const Ended = Schema.Struct({
  number: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 999 })),
  second: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 5 })),
  status: Schema.Literals(["running", "closed", "interrupted"]),
  account: Schema.Literals(["a", "b"])
})

const sourceOf = ({ account, number, second, status }: typeof Ended.Type): RunFacts.Source => ({
  runId: RunId.make(`run-${String(number).padStart(8, "0")}`),
  startedAt: `2026-01-01T00:00:0${second}.000Z`,
  spec: {
    llm: {
      model: "m",
      models: {},
      unknownFields: "drop",
      caller: "sandbox",
      identity: { billingAccountId: account, attempt: 0 }
    }
  },
  outcome: { status }
})

describe("search", () => {
  it.prop(
    "returns all matching runs once, newest first, over pages of any size",
    [
      Schema.Array(Ended).check(Schema.isMaxLength(30)),
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 7 }))
    ],
    ([all, limit]) => {
      const sources = [...new Map(all.map((one) => [one.number, sourceOf(one)])).values()]
      const filter = { billingAccountId: "a", states: ["running", "closed"] } as const
      const expected = sources
        .filter((one) => RunSearch.matches(RunFacts.of(one), filter))
        .toSorted(RunSearch.order)
        .map(({ runId }) => runId)
      const found: Array<string> = []
      let after: RunSearch.Place | undefined
      do {
        const page: RunSearch.RunPage<RunFacts.Source> = RunSearch.search(sources, { filter, after, limit })
        assert.isAtMost(page.records.length, limit)
        found.push(...page.records.map(({ runId }) => runId))
        assert.isAtMost(found.length, sources.length)
        after = page.next && RunSearch.parseCursor(RunSearch.formatCursor(page.next))
      } while (after !== undefined)
      assert.deepStrictEqual(found, expected)
    }
  )

  it("refuses a cursor that is not one", () => {
    for (const text of ["", "e30", "%%%", "bm90IGpzb24"]) assert.isUndefined(RunSearch.parseCursor(text))
  })
})

describe("the facts of a run", () => {
  const source = (over: Partial<RunFacts.Source>): RunFacts.Source => ({
    ...sourceOf({ number: 1, second: 0, status: "running", account: "a" }),
    ...over
  })

  it("prefer the judgement of its graph to its exit code", () => {
    const exited = { status: "exited", result: { exitCode: 0 } } as const
    assert.strictEqual(RunFacts.of(source({ outcome: exited })).state, "succeeded")
    const graph = {
      ok: false,
      reason: "AgentFailed",
      graphId: "sandbox:agent",
      grantId: "g",
      repository: "https://r"
    }
    assert.containSubset(RunFacts.of(source({ outcome: exited, annotations: { graph } })), {
      state: "failed",
      reason: "AgentFailed",
      graphId: "sandbox:agent",
      grantId: "g",
      repository: "https://r"
    })
    assert.containSubset(RunFacts.of(source({ outcome: { status: "failed", reason: "OomKilled" } })), {
      state: "failed",
      reason: "OomKilled"
    })
  })

  it("ignore invalid annotations, and cut long ones", () => {
    const facts = RunFacts.of(source({ annotations: { graph: 1, relay: { origin: "x".repeat(9000) } } }))
    assert.strictEqual(facts.state, "running")
    assert.strictEqual(facts.repository?.length, RunFacts.factCharsMax)
  })
})
