/** The cost of a run and of a heartbeat for Temporal's server, with workers that have nothing else to do. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as DurableRun from "@cogni/sandbox-temporal/DurableRun"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import { Deferred, Effect, Schedule } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

export interface ServerCosts {
  readonly runs: number
  /** Processor time of the server, in milliseconds. */
  readonly runMillis: number
  readonly heartbeatMillis: number
}

const graphId = GraphId.make("sandbox:agent")

const grant = { id: "bench", billingAccountId: "bench", allowSandbox: true, mayWrite: true }

/** Time in which heartbeats are measured, of which each run has one every four seconds. */
const beatSeconds = 20

const secondsPerBeat = 4

const submittersTotal = 20

/** Milliseconds in a tick of the kernel's counters. */
const tickMillis = 10

/** Finds the process of a server by its port. */
const processOf = (address: string): string => {
  const port = address.split(":").at(-1)
  const found = readdirSync("/proc").find((id) => {
    if (!/^\d+$/u.test(id)) return false
    try {
      return (
        readFileSync(`/proc/${id}/cmdline`, "utf8").includes(`start-dev\0`) &&
        readFileSync(`/proc/${id}/cmdline`, "utf8").includes(`--port\0${port}\0`)
      )
    } catch {
      return false
    }
  })
  if (found === undefined) throw new Error(`no process has port ${port}`)
  return found
}

/** Processor time of a process so far, in milliseconds. */
const cpuMillis = (processId: string): number => {
  const text = readFileSync(`/proc/${processId}/stat`, "latin1")
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
  return (Number(fields[11]) + Number(fields[12])) * tickMillis
}

export const measure = Effect.fnUntraced(function* (total: number) {
  const address = yield* TemporalDevServer.acquire
  const processId = processOf(address)
  const cpu = Effect.sync(() => cpuMillis(processId))
  const memory = yield* HostKeeper.makeMemory(grant, [graphId])
  const server = { address, namespace: "default", taskQueue: "cogni-sandbox" }
  const ready = yield* Deferred.make<void>()
  yield* RunWorker.serve({
    ...server,
    host: "bench-1",
    keepers: [memory.keeper],
    capacity: { runsMax: total, labels: [] },
    ready: Effect.asVoid(Deferred.succeed(ready, undefined))
  }).pipe(Effect.forkScoped)
  yield* Deferred.await(ready)
  const runs = yield* DurableRuns.make({ ...server, isSearchable: true })
  const ids = Array.from({ length: total }, (_, index) => RunId.make(`bench-idle-${index}`))
  const asked = {
    ...DurableRun.defaults,
    grantId: grant.id,
    request: { graphId, messages: [{ role: "user", content: "Where is Lima?" }] as const }
  }
  const before = yield* cpu
  yield* Effect.forEach(ids, (runId) => runs.submit({ ...asked, runId }), {
    concurrency: submittersTotal,
    discard: true
  })
  yield* memory.started.pipe(
    Effect.repeat({ schedule: Schedule.spaced("100 millis"), while: (all) => all.length < total })
  )
  const started = yield* cpu
  yield* Effect.sleep(`${beatSeconds} seconds`)
  const beaten = yield* cpu
  yield* Effect.forEach(ids, (runId) => memory.change(runId, { status: "succeeded" }), { discard: true })
  yield* Effect.forEach(ids, runs.wait, { concurrency: "unbounded", discard: true })
  const round = (value: number) => Math.round(value * 100) / 100
  return {
    runs: total,
    heartbeatMillis: round(((beaten - started) * secondsPerBeat) / (total * beatSeconds)),
    runMillis: round((started - before + (yield* cpu) - beaten) / total)
  } satisfies ServerCosts
}, Effect.scoped)
