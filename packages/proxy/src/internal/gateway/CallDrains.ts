/**
 * Calls of a run whose agent has gone. The gateway still reads their answers, up to a limit, to learn what they cost.
 *
 * Upstreams differ in what they bill for a call that is cut off: nothing, what was written, or the whole answer. Only a
 * call that was read to its end has known figures. Until then it keeps its place among the concurrent calls of its run,
 * its memory and its reservation, so that an agent gains nothing by leaving.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

export interface Limits {
  /** Bytes of one answer that are read after its agent has gone. */
  readonly drainBytesMax: number
  /** How long one answer is read after its agent has gone. */
  readonly drainSecondsMax: number
  /** How long the end of a run waits for the answers that are still read. */
  readonly endDrainSecondsMax: number
}

/** Course of a call after its agent had gone. */
export interface Drained {
  /** Whether the agent left, or its run ended. */
  readonly reason: "client_aborted" | "run_ended"
  /** Bytes of the answer that were read since. */
  readonly bytes: number
  readonly durationMs: number
  /** Why the answer was not read to its end, if the gateway cut it off. */
  readonly cutBy?: string | undefined
}

/** A call that was handed to the upstream. */
export interface CallDrain {
  /** Notes that the call's agent has gone. Its answer is read on within the limits. */
  readonly left: () => void
  /** Counts bytes of the answer. It can cut the call off, so call it last. */
  readonly read: (bytes: number) => void
  /** Returns what happened since the agent has gone; undefined if it has not. */
  readonly drained: () => Drained | undefined
  /** Forgets the call, which has ended. */
  readonly end: () => void
}

export interface CallDrains {
  /** Adds a call. `cut` ends it at once. Unless it `reads`, it is cut off when its agent goes. */
  readonly open: (cut: () => void, call: { readonly reads: boolean }) => CallDrain
  /** Ends the run: disconnects its agents, waits for the open answers within the limit, and cuts off the rest. */
  readonly finish: (disconnect: () => void) => Effect.Effect<void>
}

/** An open call. `cut` ends it, with the reason for the audit. */
interface Open {
  readonly cut: (why: string) => void
}

export const make = ({ drainBytesMax, drainSecondsMax, endDrainSecondsMax }: Limits): CallDrains => {
  const calls = new Set<Open>()
  let hasEnded = false
  let onEmpty = () => undefined as void

  const open: CallDrains["open"] = (cut, { reads }) => {
    let gone: { readonly reason: Drained["reason"]; readonly sinceMs: number } | undefined
    let bytes = 0
    let cutBy: string | undefined
    let timer: NodeJS.Timeout | undefined
    const call: Open = {
      cut: (why) => {
        if (cutBy !== undefined || !calls.has(call)) return
        cutBy = why
        cut()
      }
    }
    calls.add(call)
    return {
      left: () => {
        if (gone !== undefined || !calls.has(call)) return
        gone = { reason: hasEnded ? "run_ended" : "client_aborted", sinceMs: performance.now() }
        if (!reads || drainBytesMax === 0 || drainSecondsMax === 0)
          return call.cut("its agent had gone, and no answer of it is read without one")
        timer = setTimeout(
          () => call.cut(`its answer was not complete ${drainSecondsMax} s after its agent had gone`),
          drainSecondsMax * 1000
        )
      },
      read: (more) => {
        if (gone === undefined) return
        bytes += more
        if (bytes > drainBytesMax)
          call.cut(`its answer was not complete ${drainBytesMax} bytes after its agent had gone`)
      },
      drained: () =>
        gone && {
          reason: gone.reason,
          bytes,
          durationMs: Math.round((performance.now() - gone.sinceMs) * 1000) / 1000,
          cutBy
        },
      end: () => {
        clearTimeout(timer)
        if (calls.delete(call) && calls.size === 0) onEmpty()
      }
    }
  }

  const empty = Effect.callback<void>((resume) => {
    onEmpty = () => resume(Effect.void)
    if (calls.size === 0) onEmpty()
  })

  return {
    open,
    finish: (disconnect) =>
      Effect.suspend(() => {
        hasEnded = true
        disconnect()
        return Effect.timeoutOption(empty, Duration.seconds(endDrainSecondsMax))
      }).pipe(
        Effect.andThen(
          Effect.sync(() => {
            for (const call of calls)
              call.cut(`its answer was not complete ${endDrainSecondsMax} s after the end of its run`)
          })
        )
      )
  }
}
