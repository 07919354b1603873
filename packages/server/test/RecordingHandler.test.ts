/** Tests recordings of runs over HTTP: what they are, while and after the run, and who gets them. */
import * as Await from "../../../test/harness/Await.ts"
import * as Asciicast from "../../../test/harness/Asciicast.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { answering, envelope, question, serve } from "./ServerWorld.ts"

const pathOf = (runId: string) => `/api/v1/runs/${runId}/recording`

describe("the recording of a run", () => {
  it.effect("is an asciicast v3 file that a browser only saves", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Limå") })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const { body, headers, status } = yield* caller.get(pathOf(runId))
      assert.strictEqual(status, 200)
      assert.strictEqual(headers.get("content-type"), "application/x-asciicast")
      assert.strictEqual(headers.get("content-disposition"), `attachment; filename="${runId}.cast"`)
      assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
      assert.strictEqual(headers.get("cache-control"), "private, no-store")
      const cast = Asciicast.parse(body)
      assert.strictEqual(cast.header.title, runId)
      assert.strictEqual(Asciicast.outputOf(cast), envelope("Limå"))
      assert.deepStrictEqual(Asciicast.markersOf(cast), [
        "run started",
        "agent started",
        "agent ended",
        "run ended: exit code 0"
      ])
      assert.deepStrictEqual(cast.events.at(-1), { interval: 0, code: "x", data: "0" })
    })
  )

  it.effect("has both channels until now while the run is under way, and its end afterwards", () =>
    Effect.gen(function* () {
      const world = yield* serve({
        program: ({ stderr, stdout, terminated }) =>
          Effect.gen(function* () {
            yield* stdout("one\n")
            yield* stderr("<script>alert(1)</script>")
            yield* terminated
            return 143
          })
      })
      const caller = yield* world.caller()
      const { runId } = yield* caller.open(question)
      const read = Effect.map(caller.get(pathOf(runId)), ({ body }) => Asciicast.parse(body))
      yield* Await.until(
        "the output is there",
        Effect.map(read, (cast) => Asciicast.outputOf(cast) === "one\n<script>alert(1)</script>")
      )
      assert.notInclude(Asciicast.markersOf(yield* read).join(), "run ended")
      yield* caller.delete(`/api/v1/runs/${runId}`)
      yield* world.left(runId)
      assert.strictEqual(Asciicast.markersOf(yield* read).at(-1), "run ended: interrupted")
    })
  )

  it.effect("is refused if this server has none", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima"), journals: false })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const { body, status } = yield* caller.get(pathOf(runId))
      assert.deepStrictEqual([status, body.error.reason], [404, "RecordingNotKept"])
      assert.include(body.error.message, "stdout")
    })
  )

  it.effect("takes a place of a reader, and returns it", () =>
    Effect.gen(function* () {
      const world = yield* serve({
        program: ({ terminated }) => Effect.as(terminated, 143),
        limits: { readersPerGrantMax: 1 }
      })
      const caller = yield* world.caller()
      const { runId } = yield* caller.open(question)
      const statusIs = (wanted: number) =>
        Await.until(
          `the status is ${wanted}`,
          Effect.map(caller.get(pathOf(runId)), ({ status }) => status === wanted)
        )
      for (let reading = 0; reading < 3; reading++) yield* statusIs(200)
      const reader = new AbortController()
      yield* Effect.promise(() =>
        fetch(`${world.url}/api/v1/runs/${runId}/events`, { headers: caller.headers, signal: reader.signal })
      )
      const refused = yield* caller.get(pathOf(runId))
      assert.deepStrictEqual([refused.status, refused.body.error.reason], [503, "TooManyReaders"])
      assert.strictEqual(refused.headers.get("retry-after"), "5")
      reader.abort()
      yield* statusIs(200)
    })
  )
})
