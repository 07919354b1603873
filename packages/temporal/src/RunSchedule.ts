/**
 * A durable run that is repeated: when it is due, and the rules if it is late or still under way. Plain data.
 *
 * Each firing is a run of its own. Its ID is the name of the schedule, a random tag of the schedule, and the time for
 * which it was due. Pure.
 */
import { Schema } from "effect"
import { DurableRun } from "./DurableRun.ts"

const { runId: _, ...repeated } = DurableRun.fields

const text = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

const bounded = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const yearSeconds = 366 * 86_400

export const RunSchedule = Schema.Struct({
  /** Name of the schedule. The ID of each run begins with it. */
  name: Schema.String.check(
    Schema.isPattern(/^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$/u, {
      expected: "1 to 20 lower-case letters, digits and inner hyphens"
    })
  ),
  /** Either cron expressions with five to seven fields, or an interval. */
  times: Schema.Union([
    Schema.Struct({
      cron: Schema.Array(text).check(Schema.isMinLength(1), Schema.isMaxLength(16)),
      /** Name of a time zone, such as `Europe/Berlin`. Default: UTC. */
      timeZone: Schema.optionalKey(text)
    }),
    Schema.Struct({ everySeconds: bounded(1, yearSeconds) })
  ]),
  /** Longest delay of a firing, which is chosen at random, so that many schedules do not fire together. */
  jitterSecondsMax: bounded(0, 86_400),
  /**
   * A firing that is due while the last run is under way. `skip`: it is left out. `queue`: one waits for the end of the
   * run. `cancel`: the last run is cancelled first. `allow`: both run.
   */
  overlap: Schema.Literals(["skip", "queue", "cancel", "allow"]),
  /** A firing that is late by more than this, because Temporal was down, is left out. Temporal needs at least 10. */
  catchUpSecondsMax: bounded(10, yearSeconds),
  run: Schema.Struct(repeated)
})

export type RunSchedule = typeof RunSchedule.Type

/** Rules of a schedule that sets none. */
export const defaults = {
  jitterSecondsMax: 0,
  overlap: "skip",
  catchUpSecondsMax: 600
} satisfies Partial<typeof RunSchedule.Encoded>

/** The state of a schedule. */
export interface RunScheduleState {
  readonly name: string
  readonly grantId: string
  readonly graphId: string
  /** Times in words, such as `0 3 * * * (Europe/Berlin)` or `every 3600 s`. */
  readonly times: string
  readonly isPaused: boolean
  /** Why it is paused. */
  readonly note?: string | undefined
  /** The next times at which it is due, the soonest first. */
  readonly nextAt: ReadonlyArray<Date>
  /** The last runs, the oldest first. */
  readonly recent: ReadonlyArray<{ readonly runId: string; readonly startedAt: Date }>
}
