/**
 * Looks into requests: small ones at once, large ones on another thread, so that no run holds up another.
 *
 * The thread starts with the first large body and serves one after the other. One that takes too long ends with its
 * thread; whoever waits behind it is served by the next.
 */
import { Worker } from "node:worker_threads"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RequestInspection from "../RequestInspection.ts"

export interface Ask {
  readonly id: number
  readonly request: RequestInspection.InspectionRequest
}

export interface Told {
  readonly id: number
  readonly inspection: RequestInspection.Inspection
}

/** A body could not be looked into. */
export class InspectionFailed extends Error {}

export interface Inspector {
  readonly inspect: (
    runId: RunId,
    request: RequestInspection.InspectionRequest
  ) => RequestInspection.Inspection | Promise<RequestInspection.Inspection>
  readonly close: () => void
}

/** What is smaller takes less than a millisecond or two. */
export const inlineBytesMax = 192 * 1024

/** Of one body. */
const inspectionSecondsMax = 15

interface Waiting {
  readonly ask: Ask
  readonly resolve: (inspection: RequestInspection.Inspection) => void
  readonly reject: (error: InspectionFailed) => void
}

/** Runs from sources and from what is published alike. */
const workerUrl = new URL(
  `./InspectionWorker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`,
  import.meta.url
)

export const make = (options: { readonly secondsMax?: number | undefined } = {}): Inspector => {
  /** By run, the one that has waited longest first: whoever sends many waits behind himself. */
  const queues = new Map<RunId, Array<Waiting>>()
  let worker: Worker | undefined
  let current: Waiting | undefined
  let late: NodeJS.Timeout | undefined
  let serial = 0
  let closed = false

  const give = (failed: string) => {
    const waiting = current
    current = undefined
    clearTimeout(late)
    const old = worker
    worker = undefined
    old?.removeAllListeners()
    // What it still says is nobody's; without a listener an error of it would end the process.
    old?.on("error", () => undefined)
    void old?.terminate()
    waiting?.reject(new InspectionFailed(failed))
    next()
  }

  const start = (): Worker => {
    const started = new Worker(workerUrl, { name: "cogni-inspection", resourceLimits: { stackSizeMb: 4 } })
    started.unref()
    started.on("message", ({ id, inspection }: Told) => {
      if (current?.ask.id !== id) return
      const { resolve } = current
      current = undefined
      clearTimeout(late)
      resolve(inspection)
      next()
    })
    started.on("error", (error) => give(`the inspection failed: ${error.message}`))
    started.on("exit", () => {
      if (worker === started) give("the inspection ended")
    })
    return started
  }

  const next = () => {
    if (current !== undefined || closed) return
    const longest = queues.entries().next().value
    if (longest === undefined) return
    const [runId, waiting] = longest
    current = waiting.shift()
    queues.delete(runId)
    if (waiting.length > 0) queues.set(runId, waiting)
    if (current === undefined) return
    worker ??= start()
    late = setTimeout(
      () => give("the inspection took too long"),
      (options.secondsMax ?? inspectionSecondsMax) * 1000
    )
    const { ask } = current
    // The bytes themselves go over, no copy of them.
    worker.postMessage(ask, [ask.request.body.buffer as ArrayBuffer])
  }

  return {
    inspect: (runId, request) =>
      request.body.byteLength <= inlineBytesMax
        ? RequestInspection.inspect(request)
        : new Promise((resolve, reject) => {
            if (closed) {
              reject(new InspectionFailed("the gateway is closed"))
              return
            }
            const waiting = queues.get(runId) ?? []
            waiting.push({ ask: { id: serial++, request }, resolve, reject })
            queues.set(runId, waiting)
            next()
          }),
    close: () => {
      closed = true
      const left = [...queues.values()].flat()
      queues.clear()
      for (const waiting of left) waiting.reject(new InspectionFailed("the gateway is closed"))
      give("the gateway is closed")
    }
  }
}
