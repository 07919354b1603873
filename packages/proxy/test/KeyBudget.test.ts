/** LiteLLM's errors for a key whose budget is spent, as its versions write them, and errors that are others. */
import { assert, describe, it } from "@effect/vitest"
import * as KeyBudget from "../src/internal/policy/KeyBudget.ts"

const error = (message: unknown, type = "budget_exceeded") => JSON.stringify({ error: { message, type } })

describe("KeyBudget", () => {
  it.each<[string, number, string, KeyBudget.KeyBudget]>([
    [
      "1.106",
      422,
      "Budget has been exceeded! Key=sk-...ab12 Current cost: 2.5, Max budget: 2.0",
      { limitUsd: 2, usedUsd: 2.5 }
    ],
    [
      "1.101",
      429,
      "Budget has been exceeded! Current cost: 1e-05, Max budget: 1e-06",
      { limitUsd: 1e-6, usedUsd: 1e-5 }
    ],
    [
      "old",
      400,
      "ExceededTokenBudget: Current spend for token: 2.1; Max Budget for Token: 2.0",
      { limitUsd: 2, usedUsd: 2.1 }
    ],
    ["without amounts", 422, "spent", { limitUsd: 3, usedUsd: 3 }]
  ])("reads the amounts of version %s", (_, status, message, expected) => {
    assert.deepStrictEqual(KeyBudget.ofError(status, error(message), 3), expected)
  })

  it.each<[string, number, string]>([
    ["of the account", 422, error("ExceededBudget: End User=a over budget. Spend=2.5, Budget=2.0")],
    ["of a team", 422, error("Budget has been exceeded! Team=t Current cost: 2.5, Max budget: 2.0")],
    ["of another type", 429, error("Max parallel requests", "throttling_error")],
    ["of a success", 200, error("Max budget: 2.0")],
    ["of the upstream itself", 500, error("Max budget: 2.0")],
    ["that is not JSON", 422, "budget_exceeded"],
    ["that is empty", 422, ""]
  ])("ignores an error %s", (_, status, text) => {
    assert.isUndefined(KeyBudget.ofError(status, text, 3))
  })

  it("ignores an error without amounts if the budget of the key is unknown", () => {
    assert.isUndefined(KeyBudget.ofError(422, error({ text: "an object" }), undefined))
  })
})
