/**
 * Inspects requests: small ones at once, costly ones on other threads of the shard, so that no run delays another.
 *
 * One thread is for bodies that take a moment, the other for bodies that may take seconds, so that ordinary calls do
 * not wait behind those. Each starts with its first body and inspects one body at a time. Processor time is charged to
 * the run, and a run that has exhausted its time waits while others are served. A body that takes too long, or too much
 * memory, ends with its thread; the next thread serves the bodies behind it.
 */
import type { Worker } from "node:worker_threads"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { MetadataOutcome, MetadataRequest } from "../packages/Metadata.ts"
import * as MetadataRewrite from "../packages/MetadataRewrite.ts"
import * as RequestInspection from "../policy/RequestInspection.ts"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as ThreadCode from "../ThreadCode.ts"
import type { RunGate } from "./RunGate.ts"

/** Work for a thread: to inspect a request, or to rewrite the metadata of a package. */
export interface Ask {
  readonly id: number
  readonly work:
    | { readonly _tag: "Inspect"; readonly request: RequestInspection.InspectionRequest }
    | { readonly _tag: "Rewrite"; readonly request: MetadataRequest }
}

/** The first message of a thread, which has then loaded its program. */
export const loaded = "loaded"

export interface Told {
  readonly id: number
  readonly result: RequestInspection.Inspection | MetadataOutcome
  /** Processor time of the inspection. */
  readonly processorMillis: number
}

/** A body could not be inspected. */
export class InspectionFailed extends Data.TaggedError("InspectionFailed")<{ readonly detail: string }> {}

/** The host could not start a thread that inspects bodies. The body is not the cause. */
export class InspectorMissing extends Data.TaggedError("InspectorMissing")<{
  readonly detail: string
  readonly remedy: string
}> {}

type InspectionError = InspectionFailed | InspectorMissing

/** The run of a body, and the gate that its processor time is charged to. */
export interface Inspected {
  readonly runId: RunId
  readonly gate: Pick<RunGate, "worked" | "pauseMillis">
}

export interface Inspector {
  /** Inspects a body. Interruption stops it at once, together with the thread that inspects it. */
  readonly inspect: (
    run: Inspected,
    request: RequestInspection.InspectionRequest
  ) => Effect.Effect<RequestInspection.Inspection, InspectionError>
  /** Rewrites metadata of a package. Large metadata has a thread of its own, so that no model call waits behind it. */
  readonly rewrite: (
    run: Inspected,
    request: MetadataRequest
  ) => Effect.Effect<MetadataOutcome, InspectionError>
}

/** A thread with its queue. */
type Lane = (run: Inspected, work: Ask["work"]) => Effect.Effect<Told["result"], InspectionError>

interface InspectorOptions {
  /** Program of its threads. */
  readonly code: ThreadCode.ThreadCode
  /** Timeout for one body. */
  readonly secondsMax?: number | undefined
  /** Returns true if the shard serves only one run, which can then delay no other run. */
  readonly isAlone: () => boolean
}

/** Bodies up to this size take about ten milliseconds at most, whatever they contain. */
const inlineBytesMax = 8 * 1024

/** The same limit for a run alone on its shard, and a body without numbers that are parsed one by one. */
const inlineAloneBytesMax = 192 * 1024

/** Bodies up to this size take about 100 ms at most, if they have no numbers that are parsed one by one. */
const quickBytesMax = 1024 * 1024

/** Default timeout for one body. */
const inspectionSecondsMax = 15

/** A body of 32 MiB is in memory four or five times while it is rebuilt. */
const memoryMiBMax = 768

const quickMemoryMiBMax = 256

const metadataMemoryMiBMax = 1024

/** Metadata of packages up to this size takes a few milliseconds. */
const metadataInlineBytesMax = 64 * 1024

interface Waiting {
  readonly run: Inspected
  readonly ask: Ask
  readonly resume: (done: Effect.Effect<Told["result"], InspectionError>) => void
}

export const make = (options: InspectorOptions): Inspector => {
  const quick = makeLane(options, quickMemoryMiBMax)
  const slow = makeLane(options, memoryMiBMax)
  const metadata = makeLane(options, metadataMemoryMiBMax)
  const isInline = (bytes: number, isPlain: () => boolean) =>
    bytes <= inlineBytesMax || (bytes <= inlineAloneBytesMax && options.isAlone() && isPlain())
  return {
    inspect: (run, request) =>
      Effect.suspend(() => {
        const bytes = request.body.byteLength
        const isPlain = onceAsked(() => !JsonSurvey.survey(request.body).vastNumbers)
        if (isInline(bytes, isPlain)) return Effect.succeed(RequestInspection.inspect(request))
        const lane = bytes <= quickBytesMax && isPlain() ? quick : slow
        const done = lane(run, { _tag: "Inspect", request })
        return done as Effect.Effect<RequestInspection.Inspection, InspectionError>
      }),
    rewrite: (run, request) =>
      Effect.suspend(() => {
        if (request.body.byteLength <= metadataInlineBytesMax)
          return Effect.succeed(MetadataRewrite.rewrite(request))
        const done = metadata(run, { _tag: "Rewrite", request })
        return done as Effect.Effect<MetadataOutcome, InspectionError>
      })
  }
}

const missing = (detail: string, thrown: unknown): InspectorMissing =>
  new InspectorMissing({
    detail: `a thread that inspects requests cannot be started: ${detail}${
      thrown === undefined ? "" : ` (${messageOf(thrown)})`
    }`,
    remedy: ThreadCode.isMissing(thrown)
      ? ThreadCode.missingRemedy
      : "Allow this process more threads (ulimit -u, pids.max), and check its free memory"
  })

const onceAsked = <A>(ask: () => A): (() => A) => {
  let told: { readonly answer: A } | undefined
  return () => (told ??= { answer: ask() }).answer
}

/** One thread and its queue. */
const makeLane = (options: InspectorOptions, heapMiBMax: number): Lane => {
  /** Bodies by run, in round-robin order, so that a run that sends many delays only itself. */
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

  const give = (failed: InspectionError) => {
    // Its thread can no longer report the processor time that it used.
    const waiting = finish(current === undefined ? 0 : performance.now() - beganMillis)
    const old = worker
    worker = undefined
    old?.removeAllListeners()
    // Later messages are ignored, but an error without a listener would end this thread.
    old?.on("error", () => undefined)
    void old?.terminate()
    next()
    waiting?.resume(Effect.fail(failed))
  }

  const failed = (detail: string) => give(new InspectionFailed({ detail }))

  const start = (): Worker => {
    let isLoaded = false
    const ended = (detail: string, error?: Error) =>
      isLoaded
        ? failed(`${detail}${error === undefined ? "" : `: ${error.message}`}`)
        : give(missing(detail, error))
    const started = ThreadCode.start(options.code, {
      name: "cogni-inspection",
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { stackSizeMb: 4, maxOldGenerationSizeMb: heapMiBMax }
    })
    started.unref()
    started.on("message", (message: Told | typeof loaded) => {
      if (message === loaded) {
        isLoaded = true
        return
      }
      const { id, processorMillis, result } = message
      if (current?.ask.id !== id) return
      const waiting = finish(processorMillis)
      next()
      waiting?.resume(Effect.succeed(result))
    })
    started.on("error", (error: Error) => ended("the inspection failed", error))
    started.on("exit", () => {
      if (worker === started) ended("the inspection thread exited")
    })
    return started
  }

  /** Picks a body of the run that has waited longest and has processor time left. */
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
    beganMillis = performance.now()
    try {
      worker ??= start()
    } catch (thrown) {
      return give(missing("the inspection thread was not started", thrown))
    }
    late = setTimeout(
      () => failed("the inspection timed out"),
      (options.secondsMax ?? inspectionSecondsMax) * 1000
    )
    const { ask } = current
    // Transfers the bytes, without a copy.
    worker.postMessage(ask, [ask.work.request.body.buffer as ArrayBuffer])
  }

  const giveUp = (waiting: Waiting) => {
    if (current === waiting) return failed("the inspection was interrupted")
    const { runId } = waiting.run
    const left = (queues.get(runId) ?? []).filter((other) => other !== waiting)
    if (left.length > 0) queues.set(runId, left)
    else queues.delete(runId)
  }

  return (run, work) =>
    Effect.callback((resume) => {
      const waiting = { run, ask: { id: serial++, work }, resume }
      queues.set(run.runId, [...(queues.get(run.runId) ?? []), waiting])
      next()
      return Effect.sync(() => giveUp(waiting))
    })
}
