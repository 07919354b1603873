/**
 * Measures the processor time of a thread, and divides it among the thread's runs by their work. A run that occupies
 * the thread is held in the middle of its work.
 */

/** A run that is measured. */
export interface Metered {
  /** Charges processor time of the thread to this run. */
  readonly worked: (processorMillis: number) => void
  /** Stops reading from this run until the next measurement. */
  readonly hold: () => void
}

export interface ProcessorMeter {
  /** Notes work for a run. `units` is its weight relative to other runs' work. */
  readonly note: (run: Metered, units?: number) => void
  /** Executes work that is not charged to any run. */
  readonly exempt: <A>(work: () => A) => A
  /** Stops measuring. */
  readonly close: () => void
}

/** How often processor time is measured while there is work. */
const sampleMillis = 25

/** How long one turn of the event loop may take before its runs are held. */
const sliceMillisMax = 20

/** Processor time of the calling thread, or the busy time of its event loop if the runtime cannot measure that. */
export const threadMillis = (): number => {
  if (typeof process.threadCpuUsage !== "function") return performance.eventLoopUtilization().active
  const { system, user } = process.threadCpuUsage()
  return (system + user) / 1000
}

export const make = (): ProcessorMeter => {
  const units = new Map<Metered, number>()
  let timer: NodeJS.Timeout | undefined
  let measuredMillis = 0
  /** Exempt part of the time since then. */
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
