/** The page of `demo`: 80 columns, labelled, and without a secret. */
import { assert, describe, it } from "@effect/vitest"
import * as DemoReport from "../src/DemoReport.ts"
import { result, runId } from "./RunResults.ts"

const facts: DemoReport.DemoFacts = {
  result: result(),
  answer: `This is the demo upstream. ${"Words and words. ".repeat(20)}`,
  demo: true,
  received: [
    ["authorization", "Bearer sha256:0123456789ab"],
    ["x-litellm-spend-logs-metadata", JSON.stringify({ run_id: runId, long: "x".repeat(300) })]
  ],
  recordPath: "/state/record.json",
  user: { isCheckout: false }
}

describe("DemoReport", () => {
  it("fits into 80 columns", () => {
    for (const line of DemoReport.render(facts)) assert.isAtMost(line.length, 80, line)
  })

  it("labels the first line, and every section of the demo upstream, as a demo", () => {
    const page = DemoReport.render(facts)
    assert.include(page[0], "no model is asked")
    assert.isTrue(page.includes("Answer (demo)") && page.includes("Headers added by the proxy (demo)"))
    assert.isTrue(page.some((line) => line.includes("run --demo")))
  })

  it("names commands that its reader has: those of ./dev in a checkout, and the installed program elsewhere", () => {
    const nextOf = (isCheckout: boolean) => {
      const page = DemoReport.render({ ...facts, user: { isCheckout } })
      return page.slice(page.indexOf("Try next") + 1).map((line) => line.trim())
    }
    assert.deepStrictEqual(nextOf(true), [
      "./dev run -- sh -c 'id; ls /; touch /x'",
      "./dev run --demo 'What can you see?'",
      `./dev cli inspect ${runId}`,
      "./dev doctor"
    ])
    assert.deepStrictEqual(nextOf(false), [
      "cogni-sandbox run -- sh -c 'id; ls /; touch /x'",
      "cogni-sandbox run --demo 'What can you see?'",
      `cogni-sandbox inspect ${runId}`,
      "cogni-sandbox doctor"
    ])
  })

  it("shows the posture, the call, the headers as received, the timings and the file paths", () => {
    const text = DemoReport.render(facts).join("\n")
    for (const part of [
      "uid 1000",
      "interfaces lo; routes none",
      "read-only",
      "Bearer sha256:0123456789ab",
      "demo-1",
      "170 ms",
      "/state/record.json",
      "access.log",
      `inspect ${runId}`
    ]) {
      assert.include(text, part)
    }
    assert.include(text, "may write       /workspace\n")
  })

  it("names a real upstream, and shows only the names of its headers", () => {
    const text = DemoReport.render({ ...facts, demo: false, received: undefined }).join("\n")
    assert.include(text, "http://127.0.0.1:4000 answers")
    assert.include(text, "with your upstream")
    assert.notInclude(text, "no model is asked")
    assert.include(text, "x-litellm-customer-id")
  })

  it("makes control characters of an answer visible", () => {
    const text = DemoReport.render({ ...facts, answer: "\u001b[2Jhi" }).join("\n")
    assert.notInclude(text, "\u001b")
  })

  it("shows weakened isolation", () => {
    const { posture } = facts.result
    const rows = DemoReport.posture({
      ...posture,
      noNewPrivileges: false,
      seccompMode: 0,
      capabilities: { ...posture.capabilities, effective: "01" }
    })
    assert.deepStrictEqual(
      rows.slice(1, 4).map(([, value]) => value),
      ["effective 01", "can be gained", "seccomp mode 0"]
    )
  })
})
