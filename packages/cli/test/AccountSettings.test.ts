/** The file of limits of accounts, and which models need no credit. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as AccountSettings from "../src/AccountSettings.ts"

const fileWith = (text: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const directory = fs.mkdtempSync(path.join(os.tmpdir(), "account-settings-"))
      const file = path.join(directory, "limits.json")
      fs.writeFileSync(file, text)
      return { directory, file }
    }),
    ({ directory }) => Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true }))
  ).pipe(Effect.map(({ file }) => file))

describe("AccountSettings", () => {
  it.live("reads the limits, and returns nothing without a file", () =>
    Effect.gen(function* () {
      const limits = { estimateUsd: 0.5, freeModels: ["*:free"], accounts: { acct: { dayUsdMax: 5 } } }
      assert.deepStrictEqual(yield* AccountSettings.make(yield* fileWith(JSON.stringify(limits))), limits)
      assert.isUndefined(yield* AccountSettings.make(undefined))
    })
  )

  it.live.each([
    ["{", "does not describe limits"],
    ['{"default":{"dayUsdMax":-1}}', "dayUsdMax"],
    ['{"default":{"dailyUsdMax":1}}', "dailyUsdMax"],
    ['{"acounts":{}}', "acounts"]
  ])("refuses %s, and names the problem", ([text, problem]) =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(AccountSettings.make(yield* fileWith(text!)))
      assert.include(refused.message, problem!)
      assert.include(refused.message, "COGNI_ACCOUNT_LIMITS_FILE")
    })
  )

  it.live("refuses a file that does not exist", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(AccountSettings.make("/proc/nowhere/limits.json"))
      assert.include(refused.message, "cannot be read")
    })
  )

  it("needs no credit for free models, and for models whose every price is 0", () => {
    const { isFree } = AccountSettings.admission(
      { freeModels: ["local/*"] },
      { zero: { input: 0, output: 0 }, cheap: { input: 0, output: 0.1 } }
    )
    assert.deepStrictEqual(
      ["local/a", "zero", "cheap", "other", "toString"].map((model) => isFree!(model)),
      [true, true, false, false, false]
    )
  })
})
