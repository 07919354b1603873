/** The workflow with one more step at its beginning, which no recorded history has. */
import { sleep } from "@temporalio/workflow"
import { sandboxAgentRun as unchanged } from "../src/internal/SandboxAgentRun.ts"
import type { WorkflowInput } from "../src/internal/WorkflowInput.ts"

export async function sandboxAgentRun(input: WorkflowInput) {
  await sleep("1 second")
  return await unchanged(input)
}
