/**
 * Reads pages and bodies of audits from remembered places: their cost does not grow with what is before them.
 *
 * A reading remembers some of the places that it passes. The lines before a place are as intact as they were then. So
 * the places of a run that has ended are forgotten if its file is written again. Those of a run under way, whose audit
 * grows, are forgotten when it ends.
 */
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import type { AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import { Effect } from "effect"

/** Runs whose places are remembered. The one that was asked for least recently is read again. */
const runsMax = 16

/** Places of one run for pages. If there are more, every second one is forgotten. */
const passagesMax = 256

/** Lines between two places for pages that begin where no page ended. */
const linesBetween = 256

/** Calls of one run whose bodies have a place. Those of later calls are searched from the beginning. */
const callsMax = 2000

type Run = Pick<RunRecord, "llm" | "outcome" | "runId">
type Passage = AuditLog.Passage
type CallLine = Extract<AuditLine, { readonly type: "call.started" | "call.ended" }>

/** The remembered places of a file. */
interface Known {
  readonly mark: RunAudits.Mark
  readonly isOver: boolean
  /** Places by number. */
  readonly passages: ReadonlyArray<Passage>
  /** Places of lines with a body. */
  readonly calls: ReadonlyMap<string, Passage>
  /** All lines before this place were looked at. */
  readonly furthest: Passage | undefined
  /** There are more calls than places. */
  readonly isPartial: boolean
}

type ReadOn<E, R> = (
  runId: string,
  reading: RunAudits.FurtherReading,
  from?: RunAudits.Mark
) => Effect.Effect<RunAudits.Mark | "absent" | "elsewhere", E, R>

const keyOf = (type: CallLine["type"], callId: string) => `${type} ${callId}`

/** Adds places in their order, and thins them out if there are too many. */
const merged = (before: ReadonlyArray<Passage>, more: ReadonlyArray<Passage>): ReadonlyArray<Passage> => {
  const all = [...new Map([...before, ...more].map((one) => [one.number, one])).values()].toSorted(
    (a, b) => a.number - b.number
  )
  return all.length <= passagesMax ? all : all.filter((one, at) => at % 2 === 0 || one === more.at(-1))
}

/** Gathers the places that one reading passes. */
const makeGathering = () => {
  const passages: Array<Passage> = []
  const calls = new Map<string, Passage>()
  let last: Passage | undefined
  let isPartial = false
  return {
    see: ({ before, line, sound }: AuditLog.Passed) => {
      last = before
      if (before.number % linesBetween === 0) passages.push(before)
      if (!sound || (line?.type !== "call.started" && line?.type !== "call.ended")) return
      if (line.body === undefined) return
      if (calls.size < callsMax) calls.set(keyOf(line.type, line.callId), before)
      else isPartial = true
    },
    stop: (at: Passage) => void passages.push(at),
    onto: (known: Known | undefined, mark: RunAudits.Mark, isOver: boolean): Known => {
      const found = new Map([...(known?.calls ?? []), ...calls])
      const isFurther = (last?.number ?? 0) > (known?.furthest?.number ?? 0)
      return {
        mark,
        isOver,
        passages: merged(known?.passages ?? [], passages),
        calls: found.size > callsMax ? new Map([...found].slice(0, callsMax)) : found,
        furthest: isFurther ? last : known?.furthest,
        isPartial: isPartial || known?.isPartial === true || found.size > callsMax
      }
    }
  }
}

/** `readOn` is that of `RunAudits`. */
export const make = <E, R>(readOn: ReadOn<E, R>) => {
  const all = new Map<string, Known>()

  const knownOf = (run: Run): Known | undefined => {
    const known = all.get(run.runId)
    return known?.isOver === (run.outcome.status !== "running") ? known : undefined
  }

  const keep = (runId: string, known: Known) => {
    all.delete(runId)
    all.set(runId, known)
    const [oldest] = all.keys()
    if (all.size > runsMax && oldest !== undefined) all.delete(oldest)
  }

  /** Reads lines from a place until there are enough, and remembers places. `isEnough` is asked after each line. */
  const read = Effect.fnUntraced(function* (
    run: Run,
    from: Passage | undefined,
    onLine: (seen: AuditLog.Passed) => void,
    isEnough: () => boolean
  ): Effect.fn.Return<"read" | "absent" | "elsewhere", E, R> {
    const isOver = run.outcome.status !== "running"
    const known = knownOf(run)
    let isFromBeginning = from === undefined
    let gathering = makeGathering()
    const see = (seen: AuditLog.Passed) => {
      const wasEnough = isEnough()
      gathering.see(seen)
      onLine(seen)
      if (!wasEnough && isEnough()) gathering.stop(seen.before)
    }
    let reader = AuditLog.makeReader(RunAudits.expectedOf(run), see, from)
    const restart = () => {
      isFromBeginning = true
      gathering = makeGathering()
      reader = AuditLog.makeReader(RunAudits.expectedOf(run), see)
    }
    const { file, written } = known?.mark ?? { file: "", written: undefined }
    const mark =
      from === undefined ? undefined : { file, offset: from.offset, ...(isOver ? { written } : {}) }
    const reached = yield* readOn(run.runId, { push: (bytes) => reader.push(bytes), restart, isEnough }, mark)
    if (typeof reached === "string") {
      all.delete(run.runId)
      return reached
    }
    const now = knownOf(run)
    const isSame = now?.mark.file === reached.file && (!isOver || now.mark.written === reached.written)
    // Places from the middle of a file that was replaced meanwhile are of no use. Nor are those after lines that were
    // forgotten meanwhile: all lines before the furthest place have to be known.
    const isConnected = from !== undefined && from.number <= (now?.furthest?.number ?? 0)
    if (isFromBeginning || (isSame && isConnected))
      keep(run.runId, gathering.onto(isSame ? now : undefined, reached, isOver))
    return "read"
  })

  return {
    /** Gives the lines after a number to a collector, until it has enough. */
    lines: (run: Run, after: number, onLine: (seen: AuditLog.Passed) => void, isEnough: () => boolean) =>
      Effect.suspend(() =>
        read(
          run,
          knownOf(run)?.passages.findLast(({ number }) => number <= after + 1),
          (seen) => {
            if (seen.number > after) onLine(seen)
          },
          isEnough
        )
      ),

    /** Returns the kept body of a call. `undefined`: it is not kept, or not intact. */
    body: Effect.fnUntraced(function* (
      run: Run,
      type: CallLine["type"],
      callId: string
    ): Effect.fn.Return<string | undefined, E, R> {
      let found: CallLine | undefined
      const look = ({ line, sound }: AuditLog.Passed) => {
        if (sound && line?.type === type && line.callId === callId && line.body !== undefined) found ??= line
      }
      const known = knownOf(run)
      const from = known?.calls.get(keyOf(type, callId)) ?? known?.furthest
      yield* read(run, from, look, () => found !== undefined)
      if (found === undefined && knownOf(run)?.isPartial === true)
        yield* read(run, undefined, look, () => found !== undefined)
      return found?.body
    })
  }
}
