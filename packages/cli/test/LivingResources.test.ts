import { label } from "@cogni/sandbox-core/ResourceLabels"
import { assert, it } from "@effect/vitest"
import * as LivingResources from "../src/LivingResources.ts"

const resource = (runId: string, role: string, name = `cogni-${runId}-${role}`) => ({
  name,
  labels: { [label.run]: runId, [label.role]: role }
})

const waitingId = (digit: string) => `waiting-${digit.repeat(32)}`

it("a refusal to remove living resources counts waiting sandboxes apart from ready networks", () => {
  const waiting = [
    resource(waitingId("1"), "agent"),
    resource(waitingId("2"), "network"),
    resource(waitingId("3"), "network")
  ]
  assert.include(
    LivingResources.refusalOf(waiting).message,
    "a pool has 1 waiting sandbox and 2 ready networks. End the process with the pool"
  )
  // It waited for the run that has it now.
  const active = [
    resource("run-one", "agent"),
    resource("run-one", "socket"),
    resource(waitingId("4"), "agent", "cogni-run-two-agent")
  ]
  assert.include(
    LivingResources.refusalOf([...active, ...waiting.slice(1)]).message,
    "runs are still active: run-one, run-two; a pool has 2 ready networks. Wait until they end"
  )
})
