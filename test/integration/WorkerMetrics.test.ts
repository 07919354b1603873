/** The metrics of a worker, on a real Temporal server: the alerts for durable runs are about series that it has. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { isDeepStrictEqual } from "node:util"
import { startUnknown } from "../../packages/temporal/test/Deadlines.ts"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as Await from "../harness/Await.ts"
import { freePort } from "../harness/FreePort.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

const rules = readFileSync(
  fileURLToPath(new URL("../../examples/observability/prometheus/alerts-durable.yaml", import.meta.url)),
  "utf8"
)

const polls = [
  "cogni-sandbox activity_task 1",
  "cogni-sandbox sticky_workflow_task 1",
  "cogni-sandbox workflow_task 1",
  "cogni-sandbox-host-host-1 activity_task 1",
  "cogni-sandbox-place activity_task 1"
]

/** The open polls of each queue by their kind. */
const pollsIn = (text: string) =>
  [...text.matchAll(/^temporal_num_pollers\{.*poller_type="(\w+)",task_queue="([\w-]+)"\} (\d+)$/gmu)]
    .map(([, kind, queue, count]) => `${queue} ${kind} ${count}`)
    .toSorted()

describe("a worker with a port for metrics", () => {
  it.live("serves those of Temporal's SDK", () =>
    Effect.gen(function* () {
      const address = yield* TemporalDevServer.acquire
      const server = { ...TemporalServer.defaults, address, isSearchable: true }
      const memory = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
      const metricsPort = yield* freePort
      const worker = (port: number) =>
        RunWorker.serve({
          ...server,
          host: "host-1",
          keepers: [memory.keeper],
          capacity: { runsMax: 2, labels: [] },
          metricsPort: port
        })
      // The port of the server is in use.
      const { message } = yield* Effect.flip(worker(Number(address.split(":")[1])))
      assert.match(message, /metrics cannot be served on port \d+: .*--metrics-port/u)
      yield* Effect.forkScoped(worker(metricsPort))
      const runs = yield* DurableRuns.make(server)
      yield* runs.submit(Runs.run("run-measured"))
      yield* Await.until(
        "it has started",
        Effect.map(memory.started, (all) => all.includes("run-measured"))
      )
      yield* memory.change("run-measured", { status: "succeeded" })
      yield* runs.wait("run-measured")
      yield* startUnknown(address, "run-unknown")
      const metrics = Effect.promise(() =>
        fetch(`http://127.0.0.1:${metricsPort}/metrics`).then((answer) => answer.text())
      )
      yield* Await.until(
        "a task of a workflow has failed",
        Effect.map(metrics, (text) => text.includes("temporal_workflow_task_execution_failed_total{"))
      )
      // The server keeps each open poll of each host: ten of a kind would be ten times the hosts.
      yield* Await.until(
        "each queue is asked once for tasks of a kind",
        Effect.map(metrics, (text) => isDeepStrictEqual(pollsIn(text), polls))
      )
      const text = yield* metrics
      const names = new Set(rules.match(/\btemporal_[a-z_]+/gu))
      assert.isAtLeast(names.size, 4)
      // Polls fail only while Temporal is away.
      for (const name of names)
        if (name !== "temporal_long_request_failure_total") assert.include(text, `\n${name}{`)
    })
  )
})
