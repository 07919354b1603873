/** Flags for numbers. The error of an invalid one says what the flag takes: unit, range and an example. */
import { Option } from "effect"
import { Flag } from "effect/cli"

const decimal = /^-?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/iu

const numbers =
  (isValid: (value: number) => boolean) =>
  (name: string, metavar: string, takes: string, description: string) =>
    Flag.String(name).pipe(
      Flag.withMetavar(metavar),
      Flag.withDescription(description),
      Flag.filterMap(
        (typed) => (decimal.test(typed) ? Option.filter(Option.some(Number(typed)), isValid) : Option.none()),
        () => takes
      )
    )

/** Flag for a number. `takes` completes "Expected:", such as `a number of CPUs above 0, such as 0.5`. */
export const number = numbers(Number.isFinite)

/** Flag for a whole number. The command checks its range, unless {@link within} does. */
export const whole = numbers(Number.isSafeInteger)

/** Flag for a whole number within bounds. */
export const within = (
  name: string,
  metavar: string,
  minimum: number,
  maximum: number,
  description: string
) =>
  numbers((value) => Number.isSafeInteger(value) && value >= minimum && value <= maximum)(
    name,
    metavar,
    `a whole number from ${minimum} to ${maximum}`,
    description
  )
