/**
 * Durable runs over three hosts, each with an engine of its own. `./dev bench hosts` does the same with 200 runs.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as CliProcess from "../harness/CliProcess.ts"
import * as DurableTrial from "../harness/durable/DurableTrial.ts"
import * as Pace from "../harness/Pace.ts"
import * as PrivateEngine from "../harness/PrivateEngine.ts"

const options: DurableTrial.TrialOptions = {
  runs: 30,
  runsMax: 3,
  say: () => {}
}

layer(CliProcess.layer, { excludeTestServices: true })("durable runs over three hosts", (it) => {
  it.effect.skipIf(PrivateEngine.obstacle !== undefined)(
    "end once, are paid once and are delivered once, while hosts are drained, killed and cut off",
    () =>
      Effect.gen(function* () {
        const trial = yield* DurableTrial.run(options)
        assert.deepStrictEqual(yield* DurableTrial.judge(trial, options), [])
      }),
    { timeout: 2 * Pace.hangMillis }
  )
})
