/** Findings as a page: each with its fix, and a last line that says whether a run can succeed. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { render, settingsFinding } from "../src/DoctorCommand.ts"
import { refuse } from "../src/Failure.ts"

const ok = { check: "engine", status: "ok", detail: "answers" } as const
const warn = { check: "upstream", status: "warn", detail: "none", fix: "Set COGNI_LLM_URL" } as const
const fail = {
  check: "image runtime",
  status: "fail",
  detail: "not found",
  fix: "Build it: ./dev images"
} as const

describe("doctor", () => {
  it("aligns findings, and puts each fix below its finding", () => {
    assert.deepStrictEqual(render([ok, fail, warn]), [
      "✓  engine         answers",
      "✗  image runtime  not found",
      "   → Build it: ./dev images",
      "!  upstream       none",
      "   → Set COGNI_LLM_URL",
      "",
      "1 problem to fix before a run can succeed"
    ])
  })

  it("ends with a line that says whether a run can succeed", () => {
    assert.strictEqual(render([ok]).at(-1), "ready")
    assert.strictEqual(render([ok, warn]).at(-1), "ready, with 1 warning")
    assert.strictEqual(render([fail, fail]).at(-1), "2 problems to fix before a run can succeed")
  })

  it("checks a file of settings, if one is configured", () => {
    const find = (read: Parameters<typeof settingsFinding>[1]) => settingsFinding("account limits", read)
    assert.deepStrictEqual(find(Result.succeed(undefined)), [])
    assert.deepInclude(find(Result.succeed({}))[0], { check: "account limits", status: "ok" })
    assert.deepInclude(find(refuse("configuration", "the file is not JSON", "Correct it"))[0], {
      status: "fail",
      detail: "the file is not JSON",
      fix: "Correct it"
    })
  })
})
