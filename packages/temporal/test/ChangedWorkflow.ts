/** The workflows with one more step at their beginning, which no recorded history has. */
import { sleep } from "@temporalio/workflow"
import {
  sandboxAgentRun as unchanged,
  scheduledAgentRun as scheduledUnchanged
} from "../src/internal/SandboxAgentRun.ts"
import type { ScheduledInput } from "../src/internal/ScheduledAgentRun.ts"
import type { WorkflowInput } from "../src/internal/WorkflowInput.ts"

export async function sandboxAgentRun(input: WorkflowInput) {
  await sleep("1 second")
  return await unchanged(input)
}

export async function scheduledAgentRun(input: ScheduledInput) {
  await sleep("1 second")
  return await scheduledUnchanged(input)
}
