import { assert, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import {
  account,
  type Fixture,
  fixtures,
  headersOf,
  type Json,
  passed,
  policyFor,
  refused
} from "./Bodies.ts"

/** Expected differences from the body that the agent sent. */
interface Differences {
  /** Returns the expected body for the agent's body. */
  readonly changed?: (body: Json) => Json
  readonly dropped?: ReadonlyArray<string>
}

const without = (body: Json, ...names: ReadonlyArray<string>): Json =>
  Object.fromEntries(Object.entries(body).filter(([name]) => !names.includes(name)))

/** Keeps only functions. A namespace has tools of several agents, and the provider runs web_search. */
const functionsOfCodex = ({ tools, ...body }: Json): Json => ({
  ...without(body, "client_metadata"),
  tools: (tools as ReadonlyArray<Json>).filter(({ type }) => type === "function")
})

const differences: Readonly<Record<string, Differences>> = {
  codex: { changed: functionsOfCodex, dropped: ["tools[4]", "tools[8]", "client_metadata"] },
  "codex-media": { changed: functionsOfCodex, dropped: ["tools[2]", "tools[3]", "client_metadata"] },
  // Its tools are an item of the conversation.
  "codex-code-mode": {
    changed: (body) => without(body, "client_metadata"),
    dropped: ["client_metadata"]
  },
  // Its value names the machine, and is replaced by the run's account.
  "claude-code": { dropped: ["metadata.user_id"] },
  "claude-code-adaptive": { dropped: ["metadata.user_id"] },
  "claude-code-media": { dropped: ["metadata.user_id"] },
  // Its search is a call with only one tool, which the provider runs.
  "claude-code-search": {
    changed: (body) => without(body, "tools", "tool_choice"),
    dropped: ["tools[0]", "tool_choice", "metadata.user_id"]
  },
  // A run cannot decide whether the provider keeps an answer.
  pi: { changed: (body) => without(body, "store"), dropped: ["store"] }
}

const ours = ({ api, body }: Fixture): Json => {
  if (api === "messages") return { metadata: { user_id: account } }
  if (api === "count_tokens") return {}
  const key = body["prompt_cache_key"]
  return {
    user: account,
    ...(api === "responses" ? { store: false } : {}),
    ...(typeof key === "string" ? { prompt_cache_key: cacheKeyOf(key) } : {})
  }
}

const cacheKeyOf = (key: string): string =>
  createHash("sha256")
    .update(JSON.stringify(["prompt_cache_key", account, key]))
    .digest("base64url")

describe("requests of agents", () => {
  for (const one of fixtures) {
    const { changed = (body: Json) => body, dropped = [] } = differences[one.name] ?? {}

    it(`${one.name} (${one.agent}) is sent unchanged, except for the listed differences`, () => {
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

  it("are sent unchanged with each alternative of the fixtures by hand", () => {
    for (const one of fixtures)
      for (const instead of one.also ?? []) {
        const body = { ...one.body, ...instead }
        assert.deepStrictEqual(passed(body, policyFor(one)).sent, { ...body, ...ours(one) }, one.name)
      }
  })

  it("pass in strict runs too, or are refused with the names of the removed fields", () => {
    const names: Record<string, string | undefined> = {}
    for (const one of fixtures) {
      const policy = policyFor(one, { unknownFields: "refuse" })
      const { dropped = [] } = differences[one.name] ?? {}
      const heard = dropped.filter((path) => !/^(?:metadata\.|store$)/u.test(path))
      if (heard.length === 0) passed(one.body, policy)
      else {
        const { code, message, param } = refused(one.body, policy)
        assert.strictEqual(code, "unknown_fields")
        assert.include(message, `: ${heard.join(", ")}.`)
        names[one.name] = param
      }
    }
    assert.deepStrictEqual(names, {
      "claude-code-search": "tools[0]",
      codex: "tools[4]",
      "codex-code-mode": "client_metadata",
      "codex-media": "tools[2]"
    })
  })

  it("ask for betas of which only these are not sent", () => {
    const unheard = fixtures.flatMap((one) => {
      const heard = RoutePolicy.betas(headersOf(one))
      return (one.headers["anthropic-beta"] ?? "").split(",").filter((beta) => !heard.includes(beta))
    })
    // No allowed field needs one: two are for counting tokens, and no agent was seen to send the third one's fields.
    assert.deepStrictEqual([...new Set(unheard)].filter((beta) => beta !== "").toSorted(), [
      "mid-conversation-tool-changes-2026-07-01",
      "thinking-token-count-2026-05-13",
      "token-counting-2024-11-01"
    ])
  })

  it("fit into a fixture", () => {
    for (const { body, name } of fixtures) assert.isBelow(JSON.stringify(body).length, 30_000, name)
  })
})
