/**
 * Whose work the processor time of this thread was: measured for the thread, divided among its runs by what they asked
 * for, and stopped in the middle where one run keeps the thread to itself.
 */

/** A run that is measured. */
export interface Metered {
  /** Processor time of the thread that this run's work has used. */
  readonly worked: (processorMillis: number) => void
  /** Read nothing more of this run until the next measurement. */
  readonly hold: () => void
}

export interface ProcessorMeter {
  /** The thread does something for a run: `units` weighs it against other runs' work. */
  readonly note: (run: Metered, units?: number) => void
  /** Do something that is no run's work: what it takes is charged to none. */
  readonly exempt: <A>(work: () => A) => A
  /** Measure no more. */
  readonly close: () => void
}

/** How often processor time is measured while there is work. */
const sampleMillis = 25

/** What one turn of the event loop may do for a run before nothing more of it is read. */
const sliceMillisMax = 20

/** Of the calling thread; where the runtime cannot say, the time in which its loop was busy. */
export const threadMillis = (): number => {
  if (typeof process.threadCpuUsage !== "function") return performance.eventLoopUtilization().active
  const { system, user } = process.threadCpuUsage()
  return (system + user) / 1000
}

export const make = (): ProcessorMeter => {
  const units = new Map<Metered, number>()
  let timer: NodeJS.Timeout | undefined
  let measuredMillis = 0
  /** Of what was used since then. */
  let exemptMillis = 0
  let turnBegan: number | undefined

  const sample = () => {
    timer = undefined
    const spentMillis = Math.max(0, threadMillis() - measuredMillis - exemptMillis)
    const noted = [...units]
    units.clear()
    const all = noted.reduce((sum, [, own]) => sum + own, 0)
    for (const [run, own] of noted) run.worked((spentMillis * own) / all)
  }

  return {
    note: (run, own = 1) => {
      units.set(run, (units.get(run) ?? 0) + own)
      if (timer === undefined) {
        measuredMillis = threadMillis()
        exemptMillis = 0
        timer = setTimeout(sample, sampleMillis)
      }
      const now = performance.now()
      if (turnBegan === undefined) {
        turnBegan = now
        setImmediate(() => {
          turnBegan = undefined
        })
      } else if (now - turnBegan > sliceMillisMax) run.hold()
    },
    exempt: (work) => {
      const began = threadMillis()
      try {
        return work()
      } finally {
        exemptMillis += threadMillis() - began
      }
    },
    close: () => clearTimeout(timer)
  }
}
