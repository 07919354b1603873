/**
 * Audits of runs under way, read on instead of again: viewers ask every few seconds, and an audit only grows.
 *
 * A run has one verifier for all who ask. It remembers the head of the chain and the place in the file, and not what is
 * before: a change of an entry that was read already is found by the verdict of the ended run, which reads everything.
 */
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import type { FurtherReading, Mark } from "@cogni/sandbox-proxy/RunAudits"
import { Effect, Semaphore } from "effect"
import * as AuditedCalls from "./AuditedCalls.ts"

/** Runs whose reading is remembered. The one that was asked for least recently is read again. */
const runsMax = 16

/** The content of an audit so far. */
export interface Reached {
  readonly verdict: AuditLog.Verdict
  readonly calls: AuditedCalls.AuditedCalls
}

interface Live {
  readonly turn: Semaphore.Semaphore
  calls: AuditedCalls.AuditedCalls
  verifier: AuditLog.Verifier
  mark: Mark | undefined
  /** A reading did not end, so the verifier may be further than the mark. */
  isTorn: boolean
}

type ReadOn<E, R> = (
  runId: string,
  reading: FurtherReading,
  from?: Mark
) => Effect.Effect<Mark | "absent" | "elsewhere", E, R>

/** `readOn` is that of `RunAudits`. */
export const make = <E, R>(readOn: ReadOn<E, R>) => {
  const all = new Map<string, Live>()

  const begin = (runId: string) => {
    const calls = AuditedCalls.make()
    const verifier = AuditLog.makeVerifier({ runId, ended: false }, ({ line }) => {
      if (line !== undefined) calls.add(line)
    })
    return { calls, verifier, mark: undefined, isTorn: false }
  }
  const liveOf = (runId: string): Live => {
    const live = all.get(runId) ?? { turn: Semaphore.makeUnsafe(1), ...begin(runId) }
    all.delete(runId)
    all.set(runId, live)
    const [oldest] = all.keys()
    if (all.size > runsMax && oldest !== undefined) all.delete(oldest)
    return live
  }

  const further = Effect.fnUntraced(function* (
    runId: string,
    live: Live
  ): Effect.fn.Return<Reached | "absent" | "elsewhere", E, R> {
    const restart = () => void Object.assign(live, begin(runId), { isTorn: true })
    if (live.isTorn) restart()
    // Only what was read tears it. One that was refused, or left while it waited for its place, changed nothing.
    const push = (bytes: Uint8Array) => {
      live.isTorn = true
      live.verifier.push(bytes)
    }
    const reading: FurtherReading = { push, restart }
    const reached = yield* readOn(runId, reading, live.mark)
    live.isTorn = false
    if (typeof reached === "string") {
      all.delete(runId)
      return reached
    }
    // A file that grows is written again and again.
    live.mark = { file: reached.file, offset: reached.offset }
    return { verdict: live.verifier.end(), calls: live.calls }
  })

  return {
    /** Reads on in the audit of a run. */
    read: (runId: string) =>
      Effect.suspend(() => {
        const live = liveOf(runId)
        return further(runId, live).pipe(live.turn.withPermits(1))
      }),
    /** Forgets a run that has ended. */
    forget: (runId: string) => void all.delete(runId)
  }
}
