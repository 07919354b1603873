/**
 * Follows the events of a run, and keeps what a page shows of them.
 *
 * A stream that breaks is resumed after the last event that arrived, so nothing is missed or repeated. All that is
 * kept is bounded: a run can write for hours.
 */
import { Option, Schema } from "effect"
import { EventSourceParserStream } from "eventsource-parser/stream"
import { ApiProblem } from "./ApiProblem.ts"
import * as RunModel from "./RunModel.ts"
import type { RunsClient } from "./RunsClient.ts"

/** A piece of output. Numbers only grow. */
export interface Piece {
  readonly seq: number
  readonly text: string
}

export type Channel = "stdout" | "stderr"

/** Maximum number of kept characters of each channel. */
export const outputCharsMax = 2 * 1024 * 1024

/** The newest output of a channel. Grows in place: a run can write a hundred thousand pieces. */
class OutputLog {
  #pieces: Array<Piece> = []
  #chars = 0

  get pieces(): ReadonlyArray<Piece> {
    return this.#pieces
  }

  add(piece: Piece): void {
    this.#pieces.push(piece)
    this.#chars += piece.text.length
    // Drops a quarter at once, so that a long output is not moved for every piece.
    if (this.#chars <= outputCharsMax) return
    let dropped = 0
    while (this.#chars > outputCharsMax * 0.75 && dropped < this.#pieces.length - 1)
      this.#chars -= this.#pieces[dropped++]!.text.length
    this.#pieces = this.#pieces.slice(dropped)
  }
}

export interface Step {
  readonly id: string
  readonly kind: "phase" | "tool" | "approval" | "warning"
  readonly label: string
  /** Milliseconds since 1970. */
  readonly from: number
  /** Absent while it lasts. */
  readonly to?: number | undefined
  readonly detail?: string | undefined
  readonly isError?: boolean | undefined
}

export interface Feed {
  readonly connection: "connecting" | "live" | "waiting" | "ended" | "failed"
  readonly problem?: string | undefined
  /** Number of the last event. */
  readonly last: number
  readonly steps: ReadonlyArray<Step>
  /** Shared by all feeds of a reading. `last` changes whenever it does. */
  readonly output: Readonly<Record<Channel, OutputLog>>
  /** The run keeps no more of a channel. */
  readonly isCut: Readonly<Record<Channel, boolean>>
  /** Number of the last event about an approval of a tool call. */
  readonly approvals: number
  /** The journal was full, and output is missing from its end. */
  readonly isTruncated: boolean
}

/** Returns a feed without events. */
export const make = (): Feed => ({
  connection: "connecting",
  last: 0,
  steps: [],
  approvals: 0,
  output: { stdout: new OutputLog(), stderr: new OutputLog() },
  isCut: { stdout: false, stderr: false },
  isTruncated: false
})

/** Maximum number of kept steps, the newest ones. */
export const stepsMax = 2000

const millisOf = (at: string): number => {
  const millis = Date.parse(at)
  return Number.isNaN(millis) ? 0 : millis
}

const withStep = (feed: Feed, step: Step): Feed => ({
  ...feed,
  steps: [...feed.steps, step].slice(-stepsMax)
})

type Warning = Extract<
  RunModel.Event,
  { readonly type: "exfiltration.suspected" | "budget.exhausted" | "subagents.exhausted" }
>

const warningOf = (event: Warning): Pick<Step, "label" | "detail"> => {
  switch (event.type) {
    case "exfiltration.suspected":
      return { label: `canary ${event.evidence.canary} left in ${event.evidence.channel}` }
    case "budget.exhausted":
      return { label: `budget spent: ${event.exhaustion.budget}` }
    case "subagents.exhausted":
      return {
        label: `share of subagents spent: ${event.exhaustion.budget}`,
        detail: "Their calls are refused, and the main agent goes on."
      }
  }
}

/** Adds an event. One that is known already changes nothing. Changes nothing but the output in place. */
export const add = (before: Feed, event: RunModel.Event): Feed => {
  if (event.seq <= before.last) return before
  const feed = { ...before, last: event.seq }
  const to = millisOf(event.at)
  const id = String(event.seq)
  switch (event.type) {
    case "phase.ended":
      return withStep(feed, { id, kind: "phase", label: event.phase, from: to - event.durationMs, to })
    case "output.written":
      feed.output[event.channel].add({ seq: event.seq, text: event.text })
      return feed
    case "output.truncated":
      return { ...feed, isCut: { ...feed.isCut, [event.channel]: true } }
    case "tool.started":
      return withStep(feed, {
        id: event.toolCallId,
        kind: "tool",
        label: event.tool,
        from: to,
        detail: event.arguments
      })
    case "tool.ended":
      return {
        ...feed,
        steps: feed.steps.map((step) =>
          step.kind === "tool" && step.id === event.toolCallId && step.to === undefined
            ? { ...step, to, isError: event.isError }
            : step
        )
      }
    case "tool.approval_requested":
      return withStep(
        { ...feed, approvals: event.seq },
        { id: event.approvalId, kind: "approval", label: `waits for approval: ${event.tool}`, from: to }
      )
    case "tool.approval_decided":
      return {
        ...feed,
        approvals: event.seq,
        steps: feed.steps.map((step) =>
          step.kind === "approval" && step.id === event.approvalId
            ? { ...step, to, detail: event.decision, isError: event.decision !== "approved" }
            : step
        )
      }
    case "exfiltration.suspected":
    case "budget.exhausted":
    case "subagents.exhausted":
      return withStep(feed, { id, kind: "warning", from: to, to, ...warningOf(event) })
    case "journal.truncated":
      return { ...feed, isTruncated: true }
    case "run.ended":
      return { ...feed, connection: "ended" }
    default:
      return feed
  }
}

/** Longest event that is read, in characters. */
const eventCharsMax = 1024 * 1024

/** Waiting times between attempts, in milliseconds. The last one repeats. */
const waits = [500, 1000, 2000, 5000, 10_000]

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(RunModel.Event))

const waited = (millis: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, millis)
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true })
  })

/** Reads one stream until it ends. Returns whether the run has ended too. */
const readOnce = async (
  client: RunsClient,
  runId: string,
  update: (change: (feed: Feed) => Feed) => Feed,
  signal: AbortSignal
): Promise<boolean> => {
  const response = await client.events(runId, update((feed) => feed).last, signal)
  if (response.status === 204 || response.body === null) return true
  update((feed) => ({ ...feed, connection: "live", problem: undefined }))
  const events = response.body
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream({ maxBufferSize: eventCharsMax }))
  for await (const { data } of events) {
    // An event of a newer server is skipped.
    const event = Option.getOrUndefined(decode(data))
    if (event !== undefined && update((feed) => add(feed, event)).connection === "ended") return true
  }
  return false
}

/** Follows a run until it ends, or the signal aborts. Never rejects: the feed says what happened. */
export const follow = async (
  client: RunsClient,
  runId: string,
  update: (change: (feed: Feed) => Feed) => Feed,
  signal: AbortSignal,
  pause: (millis: number, signal: AbortSignal) => Promise<void> = waited
): Promise<void> => {
  let failures = 0
  while (!signal.aborted) {
    const before = update((feed) => feed).last
    try {
      if (await readOnce(client, runId, update, signal)) {
        update((feed) => ({ ...feed, connection: "ended", problem: undefined }))
        return
      }
    } catch (cause) {
      if (signal.aborted) return
      const problem = cause instanceof Error ? cause.message : String(cause)
      const isFinal = cause instanceof ApiProblem && !cause.isRetryable
      update((feed) => ({ ...feed, connection: isFinal ? "failed" : "waiting", problem }))
      if (isFinal) return
    }
    failures = update((feed) => feed).last > before ? 0 : failures + 1
    await pause(waits[Math.min(failures, waits.length - 1)]!, signal)
  }
}
