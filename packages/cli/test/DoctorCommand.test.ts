/** Findings as a page: each with its fix, and a last line that says whether a run can succeed. */
import { assert, describe, it } from "@effect/vitest"
import { render } from "../src/DoctorCommand.ts"

const ok = { check: "engine", status: "ok", detail: "answers" } as const
const warn = { check: "upstream", status: "warn", detail: "none", fix: "Set COGNI_LLM_URL" } as const
const fail = {
  check: "image runtime",
  status: "fail",
  detail: "not there",
  fix: "Build it: ./dev images"
} as const

describe("doctor", () => {
  it("aligns findings, and puts each fix below its own", () => {
    assert.deepStrictEqual(render([ok, fail, warn]), [
      "✓  engine         answers",
      "✗  image runtime  not there",
      "   → Build it: ./dev images",
      "!  upstream       none",
      "   → Set COGNI_LLM_URL",
      "",
      "1 thing to fix before a run can succeed"
    ])
  })

  it("its last line says whether a run can succeed", () => {
    assert.strictEqual(render([ok]).at(-1), "ready")
    assert.strictEqual(render([ok, warn]).at(-1), "ready; 1 thing could be better")
    assert.strictEqual(render([fail, fail]).at(-1), "2 things to fix before a run can succeed")
  })
})
