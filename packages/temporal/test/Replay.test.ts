/**
 * Replays recorded histories: a workflow of an earlier version must go on with the code of this one.
 *
 * Needs no server. If a change of the workflow fails here, runs under way would fail too: use `patched` of Temporal.
 */
import { assert, beforeAll, describe, it } from "@effect/vitest"
import { bundleWorkflowCode, Runtime, Worker } from "@temporalio/worker"
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Pace from "../../../test/harness/Pace.ts"

const place = (path: string) => fileURLToPath(new URL(path, import.meta.url))

const histories = readdirSync(place("histories")).map((file) => ({
  workflowId: file,
  history: JSON.parse(readFileSync(place(`histories/${file}`), "utf8")) as unknown
}))

const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, log() {} }

/** Replays every history, and returns the error of each that fails. */
const replayed = async (workflowsPath: string) => {
  const workflowInterceptorModules = [place("../src/internal/SandboxAgentRun.ts")]
  const workflowBundle = await bundleWorkflowCode({
    workflowsPath,
    workflowInterceptorModules,
    logger: silent
  })
  const failed = new Map<string, Error>()
  for await (const { error, workflowId } of Worker.runReplayHistories({ workflowBundle }, histories))
    if (error !== undefined) failed.set(workflowId, error)
  return failed
}

describe("recorded histories", () => {
  beforeAll(() => {
    assert.isAtLeast(histories.length, 12)
    Runtime.install({ logger: silent, telemetryOptions: { logging: { filter: "OFF" } } })
  })

  it("are replayed by the workflow of this version", { timeout: Pace.hangMillis }, async () => {
    assert.deepStrictEqual(await replayed(place("../src/internal/SandboxAgentRun.ts")), new Map())
  })

  it("are refused by a workflow whose steps changed", { timeout: Pace.hangMillis }, async () => {
    const failed = await replayed(place("ChangedWorkflow.ts"))
    assert.strictEqual(failed.size, histories.length)
    for (const { name } of failed.values()) assert.strictEqual(name, "DeterminismViolationError")
  })
})
