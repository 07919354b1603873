/** Values of search attributes. */
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import { assert, describe, it } from "@effect/vitest"
import * as SearchValue from "../src/internal/SearchValue.ts"
import { attributesOf } from "../src/internal/TemporalRuns.ts"
import * as Runs from "./Runs.ts"

describe("search attributes", () => {
  it("have at most as many characters as a database of Temporal stores", () => {
    const url = `https://github.com/acme/${"a".repeat(1900)}`
    const request = { ...Runs.request, graphId: GraphId.make("sandbox:agent"), repository: { url } }
    const owner = { billingAccountId: "b".repeat(500), model: "gpt" }
    const attributes = attributesOf({ request }, owner)
    assert.strictEqual(attributes["CogniRepository"], url.slice(0, 255))
    assert.strictEqual(attributes["CogniAccount"], "b".repeat(255))
    for (const [name, value] of Object.entries(attributes)) assert.isAtMost([...value].length, 255, name)
  })

  it("keep short values, and are never cut inside of a character", () => {
    assert.strictEqual(SearchValue.of("acme"), "acme")
    assert.strictEqual(SearchValue.of(`${"a".repeat(254)}😀😀`), `${"a".repeat(254)}😀`)
  })
})
