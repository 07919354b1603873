/** Durable runs for tests. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import type { RunRequest } from "@cogni/sandbox-graph-provider/graphs/RunRequest"
import { defaults, type DurableRun } from "../src/DurableRun.ts"
import type { KeeperGrant } from "../src/HostKeeper.ts"

export const graphId = GraphId.make("sandbox:agent")

export const grant: KeeperGrant = {
  id: "grant-1",
  billingAccountId: "acme",
  allowSandbox: true,
  mayWrite: true
}

export const request: RunRequest = { graphId, messages: [{ role: "user", content: "Where is Lima?" }] }

export const onRepository: RunRequest = { ...request, repository: { url: "https://github.com/acme/app" } }

export const run = (runId: string, over: Partial<DurableRun> = {}): DurableRun => ({
  ...defaults,
  runId: RunId.make(runId),
  grantId: grant.id,
  request,
  ...over
})
