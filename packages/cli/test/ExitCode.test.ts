/** The table of exit codes: complete, without duplicates, and the same in the README. */
import { assert, describe, it } from "@effect/vitest"
import * as ExitCode from "../src/ExitCode.ts"
import { Reason } from "@cogni/sandbox-core/SandboxError"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const tags = Reason.members.map((member) => member.fields._tag.schema.literal)

describe("ExitCode", () => {
  it("has unique codes, each of which fits into an exit status", () => {
    const codes = ExitCode.table.map(({ code }) => code)
    assert.strictEqual(new Set(codes).size, codes.length)
    assert.isTrue(codes.every((code) => Number.isInteger(code) && code >= 0 && code < 256))
  })

  it("has no code that a shell uses: 2, 126, 127", () => {
    for (const code of [2, 126, 127]) assert.isFalse(ExitCode.table.some((entry) => entry.code === code))
  })

  it.each(tags.map((tag) => [tag] as const))("has a nonzero code for %s", (tag) => {
    assert.isAbove(ExitCode.exitCode[ExitCode.ofReason(tag)], 0)
  })

  it("has a distinct code for each limit", () => {
    const limits = [
      "TimedOut",
      "OomKilled",
      "PidsExhausted",
      "OutputLimitExceeded",
      "DiskFull",
      "BudgetExceeded",
      "ExfiltrationSuspected"
    ] as const
    assert.deepStrictEqual(
      limits.map((tag) => ExitCode.exitCode[ExitCode.ofReason(tag)]),
      [124, 137, 121, 122, 123, 120, 119]
    )
  })

  it("has the codes that shells use for signals", () => {
    assert.deepStrictEqual(
      (["SIGINT", "SIGTERM", "SIGHUP", undefined] as const).map(ExitCode.ofSignal),
      [130, 143, 129, 130]
    )
  })

  it("is the same in the README", () => {
    const readme = readFileSync(fileURLToPath(new URL("../README.md", import.meta.url)), "utf8")
    const rows = [...readme.matchAll(/^\| (\d+) \| (.+) \|$/gmu)].map(
      ([, code, meaning]) => `${code} ${meaning}`
    )
    assert.deepStrictEqual(
      rows,
      ExitCode.table.map(({ code, meaning }) => `${code} ${meaning}`)
    )
  })

  it("is in the help of the commands that take a prompt, without what only others end with", () => {
    const codesIn = (help: string) => [...help.matchAll(/^ +(\d+) {2}/gmu)].map(([, code]) => Number(code))
    const without = (...codes: ReadonlyArray<number>) =>
      ExitCode.table.map(({ code }) => code).filter((code) => !codes.includes(code))
    const [run, task] = [ExitCode.describe("run"), ExitCode.describe("task")]
    assert.deepStrictEqual(codesIn(run), without(1))
    assert.deepStrictEqual(codesIn(task), without(1, 75, 77))
    assert.notMatch(run, /doctor|prune|reconcile|reencrypt|a task|connections/u)
    assert.notMatch(task, /doctor|prune|reconcile|reencrypt|agent's own|connections/u)
  })
})
