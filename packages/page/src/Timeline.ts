/** The timeline of a run: what it did when, as bars. Pure. */
import type { Feed, Step } from "./RunFeed.ts"
import type { Call, Run, Tool } from "./RunModel.ts"
import * as VisibleText from "./VisibleText.ts"

export interface Bar {
  readonly id: string
  readonly kind: Step["kind"] | "call"
  readonly label: string
  /** Milliseconds since the run began. */
  readonly span: readonly [from: number, to: number]
  readonly isOpen: boolean
  readonly isError: boolean
}

/** Maximum number of bars. More would be too thin to see. */
export const barsMax = 200

const millisOf = (text: string | undefined): number | undefined => {
  const millis = text === undefined ? Number.NaN : Date.parse(text)
  return Number.isNaN(millis) ? undefined : millis
}

const bar = (step: Omit<Step, "kind"> & { readonly kind: Bar["kind"] }, begin: number, now: number): Bar => {
  const from = Math.max(0, step.from - begin)
  return {
    id: `${step.kind}/${step.id}`,
    kind: step.kind,
    label: VisibleText.line(step.label, 60),
    span: [from, Math.max(from, (step.to ?? now) - begin)],
    isOpen: step.to === undefined,
    isError: step.isError === true || step.kind === "warning"
  }
}

const callSteps = (calls: ReadonlyArray<Call>) =>
  calls.flatMap(({ at, durationMs, model, path, requestId, status }) => {
    const from = millisOf(at)
    return from === undefined
      ? []
      : [
          {
            id: requestId,
            kind: "call" as const,
            label: model ?? path,
            from,
            to: durationMs === undefined ? undefined : from + durationMs,
            isError: status !== undefined && status >= 400
          }
        ]
  })

const toolSteps = (tools: ReadonlyArray<Tool>) =>
  tools.flatMap((tool, index) => {
    const at = millisOf(tool.at)
    if (at === undefined) return []
    const to = tool.durationMs === undefined ? millisOf(tool.endedAt) : at + tool.durationMs
    const isError = tool.isError === true || (tool.outcome !== undefined && tool.outcome !== "ok")
    const id = tool.toolCallId ?? String(index)
    return [{ id, kind: "tool" as const, label: tool.tool, from: at, to: to ?? at, isError }]
  })

/** Phases of a record without a journal: one after the other, up to the end of the agent. */
const phaseSteps = ({ startedAt, timings }: Run) => {
  let at = millisOf(startedAt) ?? 0
  return timings.map(({ durationMs, phase }) => {
    const from = at
    at += durationMs
    return { id: phase, kind: "phase" as const, label: phase, from, to: at }
  })
}

/**
 * The time in which the agent works. Its phase is reported when it ends by itself: not while the run is under way, and
 * not of a run that was interrupted.
 */
const workStep = (phases: ReadonlyArray<Step>, { endedAt }: Run): ReadonlyArray<Step> => {
  const begun = phases.find(({ label }) => label === "entrypoint")?.to
  return begun === undefined || phases.some(({ label }) => label === "agent")
    ? []
    : [{ id: "agent", kind: "phase", label: "agent", from: begun, to: millisOf(endedAt) }]
}

export interface TimelineSource {
  readonly run: Run
  readonly feed: Pick<Feed, "steps">
  readonly calls: ReadonlyArray<Call>
  /** Tools of a run that has ended. Those of a run under way are in the feed. */
  readonly tools: ReadonlyArray<Tool>
}

/** Returns the bars by their beginning: the phases, and the last ones of the others. */
export const barsOf = (source: TimelineSource, now: number): ReadonlyArray<Bar> => {
  const all = allBars(source, now)
  if (all.length <= barsMax) return all
  const phases = all.filter(({ kind }) => kind === "phase").slice(0, barsMax / 2)
  const others = all.filter((one) => !phases.includes(one)).slice(phases.length - barsMax)
  return [...phases, ...others].toSorted((a, b) => a.span[0] - b.span[0])
}

/** Returns how many bars are not among those of `barsOf`. */
export const hiddenBars = (source: TimelineSource, now: number): number =>
  allBars(source, now).length - barsOf(source, now).length

const allBars = ({ calls, feed, run, tools }: TimelineSource, now: number): ReadonlyArray<Bar> => {
  const phases = feed.steps.filter(({ kind }) => kind === "phase")
  const reported = feed.steps.filter(({ kind }) => kind === "tool")
  const steps = [
    ...(phases.length > 0 ? [...phases, ...workStep(phases, run)] : phaseSteps(run)),
    ...feed.steps.filter(({ kind }) => kind === "warning" || kind === "approval"),
    ...(tools.length > 0 ? toolSteps(tools) : reported),
    ...callSteps(calls)
  ]
  const begin = Math.min(millisOf(run.startedAt) ?? now, ...steps.map(({ from }) => from))
  const end = millisOf(run.endedAt) ?? now
  return steps.map((step) => bar(step, begin, end)).toSorted((a, b) => a.span[0] - b.span[0])
}
