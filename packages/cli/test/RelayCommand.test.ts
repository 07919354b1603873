/** The account whose connections `relay retry` uses. */
import * as RunId from "@cogni/sandbox-core/RunId"
import type * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as RelayCommand from "../src/RelayCommand.ts"
import * as RunResults from "./RunResults.ts"

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")
const settings = { billingAccountId: "local" }

const recordOf = (account: string | undefined): RunFacts.Source => ({
  ...RunResults.record(),
  spec:
    account === undefined
      ? {}
      : {
          llm: {
            model: "m",
            models: {},
            unknownFields: "drop",
            caller: "sandbox",
            identity: { billingAccountId: account, attempt: 0 }
          }
        }
})

describe("relay retry", () => {
  it.effect.each([
    ["the account of its run", recordOf("acme"), "acme"],
    ["the account of the operator, for a run without a model", recordOf(undefined), "local"],
    ["the account of the operator, for a run without a record", undefined, "local"]
  ] as const)("uses the connections of %s", ([, record, account]) =>
    Effect.gen(function* () {
      const user = RelayCommand.userOf(settings, runId, record)
      assert.deepStrictEqual([user.billingAccountId, user.runId], [account, runId])
      assert.strictEqual((yield* user.authority).billingAccountId, account)
    })
  )
})
