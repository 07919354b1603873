/** The input of the workflow `sandboxAgentRun`. Plain data: it is in the history. */
import type { DurableRun } from "../DurableRun.ts"

export interface WorkflowInput {
  readonly run: DurableRun
  /** Whether the namespace has our search attributes. */
  readonly isSearchable: boolean
}
