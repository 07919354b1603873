/** The workflow with one more step at its beginning, which no recorded history has. */
import { sleep } from "@temporalio/workflow"
import { sandboxAgentRun as unchanged, type WorkflowInput } from "../src/internal/SandboxAgentRun.ts"

export async function sandboxAgentRun(input: WorkflowInput) {
  await sleep("1 second")
  return await unchanged(input)
}
