/** The ports of applications of Cogni over a host in memory: results and codes, never an exception. */
import { assert, describe, it } from "@effect/vitest"
import { createHost, type MemoryProgram } from "../src/index.ts"
import { runnerPort } from "../src/RunnerPort.ts"

const program: MemoryProgram = async ({ argv, signal }) => {
  switch (argv[0]) {
    case "echo":
      return { stdout: `${argv.slice(1).join(" ")}\n` }
    case "wait":
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("killed"))))
      return {}
    default:
      return { exitCode: 3, stdout: "some", stderr: "no\n" }
  }
}

const spec = {
  workspacePath: "/tmp",
  limits: { maxRuntimeSec: 30, maxMemoryMb: 256 }
}

describe("runnerPort", () => {
  it("runs a program once, and reports its output and its exit code", async () => {
    await using host = createHost({ inMemory: program })
    const { runOnce } = runnerPort(host)
    assert.deepStrictEqual(await runOnce({ ...spec, runId: "run-port00001", argv: ["echo", "a b"] }), {
      ok: true,
      exitCode: 0,
      stdout: "a b\n",
      stderr: ""
    })
    assert.deepStrictEqual(await runOnce({ ...spec, runId: "run-port00002", argv: ["other"] }), {
      ok: false,
      exitCode: 3,
      stdout: "some",
      stderr: "no\n"
    })
  })

  it("reports a failure as a code", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand, runOnce } = runnerPort(host)
    const limits = { maxRuntimeSec: 1, maxMemoryMb: 256 }
    const late = await runOnce({ ...spec, limits, runId: "run-port00003", argv: ["wait"] })
    assert.deepStrictEqual([late.ok, late.exitCode, late.errorCode], [false, 124, "timeout"])
    const invalid = await runOnce({ ...spec, runId: "UP", argv: ["echo"] })
    assert.deepStrictEqual([invalid.ok, invalid.errorCode], [false, "internal"])
    const asks = { enabled: true, attempt: 0 }
    const without = await runOnce({ ...spec, runId: "run-port00004", argv: ["echo"], llmProxy: asks })
    assert.deepStrictEqual([without.ok, without.errorCode], [false, "internal"])
    assert.include(without.stderr, "no llm")
    assert.deepStrictEqual(
      await execCommand({
        ...spec,
        runId: "run-port00005",
        command: { type: "read", args: { path: "none" } }
      }),
      { ok: false, errorCode: "command_failed" }
    )
  })

  it("executes, writes and reads in a workspace", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand } = runnerPort(host)
    assert.deepStrictEqual(
      await execCommand({
        ...spec,
        runId: "run-port00006",
        command: { type: "write", args: { path: "a.txt", content: "a" } }
      }),
      { ok: true }
    )
    const failed = await execCommand({
      ...spec,
      runId: "run-port00007",
      command: { type: "exec", args: { command: "other" } }
    })
    assert.deepStrictEqual([failed.ok, failed.errorCode], [false, "command_failed"])
  })
})
