/** Requests to a server of the operator that never answers, or never ends its answer. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { serve } from "../../../test/harness/LocalServer.ts"
import { until } from "../../../test/harness/Await.ts"
import * as GuardedFetch from "../src/internal/tools/GuardedFetch.ts"

describe("GuardedFetch", () => {
  it.live.each([
    ["no answer", false],
    ["a part of an answer", true]
  ] as const)("closes the connection of a request after its time, and ends no other: %s", ([, isBegun]) =>
    Effect.gen(function* () {
      let open = 0
      const broken: Array<string> = []
      const origin = yield* serve((_request, response) => {
        open += 1
        response.on("close", () => (open -= 1))
        if (isBegun) response.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n")
      })
      const url = new URL(`${origin}/mcp`)
      const fetch = GuardedFetch.make({
        url,
        allowPrivateAddresses: true,
        answerBytesMax: 1000,
        requestSecondsMax: 0.5,
        onBroken: (why) => broken.push(why)
      })
      const read = () => fetch(url, { method: "POST", body: "{}" }).then((answer) => answer.text())
      yield* Effect.flip(Effect.tryPromise(read))
      yield* until(
        "the connection is closed",
        Effect.sync(() => open === 0)
      )
      assert.isEmpty(broken)
    })
  )
})
