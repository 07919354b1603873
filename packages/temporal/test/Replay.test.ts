/**
 * Replays recorded histories: a workflow of an earlier version must go on with the code of this one.
 *
 * Needs no server. If a change of the workflow fails here, runs under way would fail too: use `patched` of Temporal.
 */
import { assert, beforeAll, describe, it } from "@effect/vitest"
import { bundleWorkflowCode, Runtime, Worker } from "@temporalio/worker"
import { fileURLToPath } from "node:url"
import * as Pace from "../../../test/harness/Pace.ts"
import * as RecordedHistories from "./RecordedHistories.ts"

const place = (path: string) => fileURLToPath(new URL(path, import.meta.url))

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
  const replaying = Worker.runReplayHistories({ workflowBundle }, RecordedHistories.all)
  for await (const { error, runId } of replaying)
    if (error !== undefined) failed.set(RecordedHistories.fileOf(runId), error)
  return failed
}

describe("recorded histories", () => {
  beforeAll(() => {
    const countOf = (type: string) =>
      RecordedHistories.all.filter(({ workflowType }) => workflowType === type).length
    assert.isAtLeast(countOf("sandboxAgentRun"), 12)
    assert.isAtLeast(countOf("scheduledAgentRun"), 4)
    Runtime.install({ logger: silent, telemetryOptions: { logging: { filter: "OFF" } } })
  })

  it("are replayed by the workflow of this version", { timeout: Pace.hangMillis }, async () => {
    assert.deepStrictEqual(await replayed(place("../src/internal/SandboxAgentRun.ts")), new Map())
  })

  it("are refused by a workflow whose steps changed", { timeout: Pace.hangMillis }, async () => {
    const failed = await replayed(place("ChangedWorkflow.ts"))
    assert.sameMembers(
      [...failed.keys()],
      RecordedHistories.all.map(({ file }) => file)
    )
    for (const { name } of failed.values()) assert.strictEqual(name, "DeterminismViolationError")
  })
})
