/** Findings as a page: each with its fix, and a last line that says whether a run can succeed. */
import { assert, describe, it } from "@effect/vitest"
import { render } from "../src/DoctorCommand.ts"

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
})
