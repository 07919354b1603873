/**
 * No schedule of crashes, retries and late rows charges a call of a sealed run twice, or loses one.
 *
 * `./dev bench money --schedules 50` plays more of them.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import * as CostSchedule from "../harness/billing/CostSchedule.ts"

const seeds = ["suite-1", "suite-2", "suite-3", "suite-4"]

describe("The cost of sealed runs", () => {
  for (const seed of seeds)
    it.live(`has each call once after schedule ${seed}`, () =>
      Effect.gen(function* () {
        const schedule = yield* CostSchedule.make(seed)
        const { problems, received } = yield* CostSchedule.play(schedule)
        assert.deepStrictEqual(problems, [], JSON.stringify(schedule))
        assert.isAbove(received, 0)
      }).pipe(Effect.provide(Logger.layer([])))
    )
})
