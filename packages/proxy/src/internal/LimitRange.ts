/** Values that a number among the options of a proxy may have. One without a meaning would refuse every call, or none. */
import * as Schema from "effect/Schema"

/** Values that an option may have. */
export interface LimitRange {
  readonly contains: (value: unknown) => boolean
  readonly expected: string
}

export const most = Number.MAX_SAFE_INTEGER

/** Longest delay that a timer of Node can have, in seconds. */
export const timerSecondsMax = Math.floor((2 ** 31 - 1) / 1000)

const range = (
  schema: Schema.Codec<number>,
  kind: string,
  unit: string | undefined,
  bounds: string
): LimitRange => ({
  contains: Schema.is(schema),
  expected: `${kind}${unit === undefined ? "" : ` of ${unit}`} ${bounds}`
})

export const whole = (minimum: number, maximum = most, unit?: string): LimitRange =>
  range(
    Schema.Int.check(Schema.isBetween({ minimum, maximum })),
    "a whole number",
    unit,
    `from ${minimum} to ${maximum}`
  )

export const from = (minimum: number, maximum: number, unit?: string): LimitRange =>
  range(
    Schema.Finite.check(Schema.isBetween({ minimum, maximum })),
    "a number",
    unit,
    `from ${minimum} to ${maximum}`
  )

export const above0 = (maximum: number, unit?: string): LimitRange =>
  range(
    Schema.Finite.check(Schema.isGreaterThan(0), Schema.isLessThanOrEqualTo(maximum)),
    "a number",
    unit,
    `above 0 and at most ${maximum}`
  )

/** 0 would turn a timeout of Node off. */
export const seconds = above0(timerSecondsMax, "seconds")
