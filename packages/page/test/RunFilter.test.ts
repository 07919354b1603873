/** Tests the filter in an address. */
import { assert, describe, it } from "@effect/vitest"
import { RunState } from "@cogni/sandbox-core/RunFacts"
import * as RunFilter from "../src/RunFilter.ts"

describe("RunFilter", () => {
  it("reads what it knows, and ignores everything else", () => {
    assert.deepStrictEqual(
      RunFilter.parse({
        status: "failed",
        model: "gpt",
        since: "24h",
        minCostUsd: "0.5",
        reason: "",
        agent: ["x"],
        repository: "x".repeat(201),
        other: "x"
      }),
      { status: "failed", model: "gpt", since: "24h", minCostUsd: "0.5" }
    )
    for (const search of [
      { status: "failed,asleep" },
      { since: "1y" },
      { minCostUsd: "-1" },
      { minCostUsd: "1e9" }
    ])
      assert.deepStrictEqual(RunFilter.parse(search), {})
  })

  it("asks for a period from a full minute on, so that requests repeat", () => {
    const at = Date.parse("2026-11-26T04:00:30.500Z")
    assert.strictEqual(
      String(RunFilter.queryOf({ since: "1h", agent: "a&b" }, at)),
      "agent=a%26b&from=2026-11-26T03%3A00%3A00.000Z"
    )
  })

  it("knows every status of the server", () => {
    assert.sameMembers([...RunFilter.statuses], ["starting", ...RunState.literals])
    const chosen = RunFilter.statusChoices.flatMap(([value]) => value.split(","))
    assert.sameMembers(chosen, [...RunFilter.statuses])
  })
})
