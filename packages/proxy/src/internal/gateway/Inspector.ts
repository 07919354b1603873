/**
 * Looks into requests: small ones at once, costly ones on other threads of the shard, so that no run holds up another.
 *
 * There are two threads, each started with the first body for it, each serving one body after the other: one for bodies
 * that take a moment at most, one for those that may take seconds, so that nobody's ordinary call waits behind such a
 * body. What is used is charged to the run, and a run that has used its processor time waits while others are served. A
 * body that takes too long, or too much memory, ends with its thread; those that wait behind it are served by the next.
 */
import { Worker } from "node:worker_threads"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RequestInspection from "../policy/RequestInspection.ts"
import * as JsonText from "../policy/JsonText.ts"
import type { RunGate } from "./RunGate.ts"

export interface Ask {
  readonly id: number
  readonly request: RequestInspection.InspectionRequest
}

export interface Told {
  readonly id: number
  readonly inspection: RequestInspection.Inspection
  /** Processor time that it took. */
  readonly processorMillis: number
}

/** A body could not be looked into. */
export class InspectionFailed extends Data.TaggedError("InspectionFailed")<{ readonly detail: string }> {}

/** Whose body it is, and where what it costs is counted. */
export interface Inspected {
  readonly runId: RunId
  readonly gate: Pick<RunGate, "worked" | "pauseMillis">
}

export interface Inspector {
  /** Interrupted, it is given up at once, together with the thread that was at it. */
  readonly inspect: Inspect
}

type Inspect = (
  run: Inspected,
  request: RequestInspection.InspectionRequest
) => Effect.Effect<RequestInspection.Inspection, InspectionFailed>

export interface InspectorOptions {
  /** For one body. */
  readonly secondsMax?: number | undefined
  /** Whether the shard serves one run only, which then holds up nobody but itself. */
  readonly isAlone: () => boolean
}

/** What is smaller takes at most some ten milliseconds, whatever is in it. */
export const inlineBytesMax = 8 * 1024

/** The same, where the run has its thread to itself, and the body has no numbers that are read one by one. */
export const inlineAloneBytesMax = 192 * 1024

/** What is smaller, and has no numbers that are read one by one, takes at most some hundred milliseconds. */
export const quickBytesMax = 1024 * 1024

/** For one body. */
const inspectionSecondsMax = 15

/** A body of 32 MiB is held four or five times while it is rebuilt. */
const memoryMiBMax = 768

const quickMemoryMiBMax = 256

interface Waiting {
  readonly run: Inspected
  readonly ask: Ask
  readonly resume: (inspected: Effect.Effect<RequestInspection.Inspection, InspectionFailed>) => void
}

/** Runs from sources and from what is published alike. */
const workerUrl = new URL(
  `./InspectionWorker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`,
  import.meta.url
)

export const make = (options: InspectorOptions): Inspector => {
  const quick = makeLane(options, quickMemoryMiBMax)
  const slow = makeLane(options, memoryMiBMax)
  const isInline = (bytes: number, isPlain: () => boolean) =>
    bytes <= inlineBytesMax || (bytes <= inlineAloneBytesMax && options.isAlone() && isPlain())
  return {
    inspect: (run, request) =>
      Effect.suspend(() => {
        const bytes = request.body.byteLength
        const isPlain = onceAsked(() => !JsonText.survey(request.body).vastNumbers)
        if (isInline(bytes, isPlain)) return Effect.sync(() => RequestInspection.inspect(request))
        return bytes <= quickBytesMax && isPlain() ? quick(run, request) : slow(run, request)
      })
  }
}

const onceAsked = <A>(ask: () => A): (() => A) => {
  let told: { readonly answer: A } | undefined
  return () => (told ??= { answer: ask() }).answer
}

/** One thread, and those that wait for it. */
const makeLane = (options: InspectorOptions, heapMiBMax: number): Inspect => {
  /** By run, the one that has waited longest first: a run that sends many waits behind itself. */
  const queues = new Map<RunId, Array<Waiting>>()
  let worker: Worker | undefined
  let current: Waiting | undefined
  let late: NodeJS.Timeout | undefined
  let later: NodeJS.Timeout | undefined
  let serial = 0
  let beganMillis = 0

  const finish = (processorMillis: number): Waiting | undefined => {
    const waiting = current
    current = undefined
    clearTimeout(late)
    waiting?.run.gate.worked(performance.now(), processorMillis)
    return waiting
  }

  const give = (failed: string) => {
    // Its thread cannot say any more what it has used.
    const waiting = finish(current === undefined ? 0 : performance.now() - beganMillis)
    const old = worker
    worker = undefined
    old?.removeAllListeners()
    // What it still says is ignored; without a listener an error of it would end the thread.
    old?.on("error", () => undefined)
    void old?.terminate()
    next()
    waiting?.resume(Effect.fail(new InspectionFailed({ detail: failed })))
  }

  const start = (): Worker => {
    const started = new Worker(workerUrl, {
      name: "cogni-inspection",
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { stackSizeMb: 4, maxOldGenerationSizeMb: heapMiBMax }
    })
    started.unref()
    started.on("message", ({ id, inspection, processorMillis }: Told) => {
      if (current?.ask.id !== id) return
      const waiting = finish(processorMillis)
      next()
      waiting?.resume(Effect.succeed(inspection))
    })
    started.on("error", (error) => give(`the inspection failed: ${error.message}`))
    started.on("exit", () => {
      if (worker === started) give("the inspection ended")
    })
    return started
  }

  /** Of the run that has waited longest and has processor time left. */
  const pick = (): Waiting | undefined => {
    const now = performance.now()
    let soonestMillis = Number.POSITIVE_INFINITY
    for (const [runId, waiting] of queues) {
      const pauseMillis = waiting[0]!.run.gate.pauseMillis(now)
      soonestMillis = Math.min(soonestMillis, pauseMillis)
      if (pauseMillis > 0) continue
      const picked = waiting.shift()
      queues.delete(runId)
      if (waiting.length > 0) queues.set(runId, waiting)
      return picked
    }
    if (queues.size > 0) later = setTimeout(next, Math.max(1, soonestMillis))
    return undefined
  }

  const next = () => {
    clearTimeout(later)
    if (current !== undefined) return
    current = pick()
    if (current === undefined) return
    worker ??= start()
    beganMillis = performance.now()
    late = setTimeout(
      () => give("the inspection took too long"),
      (options.secondsMax ?? inspectionSecondsMax) * 1000
    )
    const { ask } = current
    // The bytes themselves go over, no copy of them.
    worker.postMessage(ask, [ask.request.body.buffer as ArrayBuffer])
  }

  const giveUp = (waiting: Waiting) => {
    if (current === waiting) return give("it is not wanted any more")
    const { runId } = waiting.run
    const left = (queues.get(runId) ?? []).filter((other) => other !== waiting)
    if (left.length > 0) queues.set(runId, left)
    else queues.delete(runId)
  }

  return (run, request) =>
    Effect.callback((resume) => {
      const waiting = { run, ask: { id: serial++, request }, resume }
      queues.set(run.runId, [...(queues.get(run.runId) ?? []), waiting])
      next()
      return Effect.sync(() => giveUp(waiting))
    })
}
