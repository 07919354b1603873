/**
 * The time limits that Temporal itself enforces. The limits of a run are timers of its workflow, which no worker sets
 * if none lives.
 *
 * Imported by the workflow: no imports but types. Pure.
 */
import type { DurableRun } from "../DurableRun.ts"

type Limits = Pick<DurableRun, "wallSecondsMax">

/** Time that a workflow has after its own limit, to stop its run, deliver its commits and read its record. */
const endSecondsMax = 3600

/** Time after which Temporal ends the workflow of a run. */
export const runSecondsMax = ({ wallSecondsMax }: Limits): number => wallSecondsMax + endSecondsMax

/** The same, for the workflow of a firing: a worker may take it late, and the run has its whole time from then on. */
export const firingSecondsMax = (run: Limits): number => run.wallSecondsMax + runSecondsMax(run)

/** Time that is left of the limit of a run. A worker that began it late gives it no more. */
export const leftMillis = ({ wallSecondsMax }: Limits, startedAt: Date, nowMillis: number): number =>
  Math.max(1, wallSecondsMax * 1000 - Math.max(0, nowMillis - startedAt.getTime()))
