import { assert, describe, it } from "@effect/vitest"
import { account, type Fixture, fixtures, type Json, passed, policyFor } from "./Bodies.ts"

/** What is not as the agent sent it, and why. */
interface Differences {
  /** Out of the body as it was sent, what goes out. */
  readonly changed?: (body: Json) => Json
  readonly dropped?: ReadonlyArray<string>
}

const without = (body: Json, ...names: ReadonlyArray<string>): Json =>
  Object.fromEntries(Object.entries(body).filter(([name]) => !names.includes(name)))

const differences: Readonly<Record<string, Differences>> = {
  codex: {
    // A namespace holds tools of several agents, and web_search is the provider's own: neither is a function.
    changed: ({ tools, ...body }) => ({
      ...without(body, "client_metadata"),
      tools: (tools as ReadonlyArray<Json>).filter(({ type }) => type === "function")
    }),
    dropped: ["tools[4]", "tools[8]", "client_metadata"]
  },
  // It names the machine; the run's account stands there instead.
  "claude-code": { dropped: ["metadata.user_id"] },
  "claude-code-adaptive": { dropped: ["metadata.user_id"] },
  // What is kept for the account is not for a run to say.
  pi: { changed: (body) => without(body, "store"), dropped: ["store"] }
}

const ours = ({ api }: Fixture): Json =>
  api === "messages"
    ? { metadata: { user_id: account } }
    : api === "count_tokens"
      ? {}
      : api === "responses"
        ? { user: account, store: false }
        : { user: account }

describe("what agents send", () => {
  for (const one of fixtures) {
    const { changed = (body: Json) => body, dropped = [] } = differences[one.name] ?? {}

    it(`${one.name} (${one.agent}) goes out as it came, but for what is listed here`, () => {
      const { sent, ...rebuilt } = passed(one.body, policyFor(one))
      assert.deepStrictEqual(sent, { ...changed(one.body), ...ours(one) })
      assert.deepStrictEqual(rebuilt.dropped, dropped)
      assert.strictEqual(rebuilt.droppedTotal, dropped.length)
      assert.strictEqual(rebuilt.model, one.body["model"])
      assert.strictEqual(rebuilt.modelRequested, one.body["model"])
      assert.strictEqual(rebuilt.stream, one.body["stream"] === true)
      assert.isFalse(rebuilt.usageAdded, "all of these ask for it")
    })
  }

  it("by hand, goes out as it came where there is a choice", () => {
    for (const one of fixtures)
      for (const instead of one.also ?? []) {
        const body = { ...one.body, ...instead }
        assert.deepStrictEqual(passed(body, policyFor(one)).sent, { ...body, ...ours(one) }, one.name)
      }
  })

  it("fits into a fixture", () => {
    for (const { body, name } of fixtures) assert.isBelow(JSON.stringify(body).length, 40_000, name)
  })
})
