/** Tests recordings of runs over HTTP: what they are, while and after the run, and who gets them. */
import * as Await from "../../../test/harness/Await.ts"
import * as Asciicast from "../../../test/harness/Asciicast.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Stream } from "effect"
import { HttpServerRequest } from "effect/http"
import { TestClock } from "effect/testing"
import { CurrentGrant } from "../src/internal/Authentication.ts"
import * as Readers from "../src/internal/Readers.ts"
import * as RecordingHandler from "../src/internal/RecordingHandler.ts"
import * as ServerLimits from "../src/ServerLimits.ts"
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

  it.effect("has the end in the record of a run whose process could not write it", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const runId = RunId.make("run-00000000000a")
      yield* world.journal.hold(runId)
      yield* caller.chat({ ...question, runId })
      yield* world.left(runId)
      const entries = (yield* world.journal.read({ runId }))?.entries ?? []
      assert.notInclude(
        entries.map(({ type }) => type),
        "run.ended"
      )
      const cast = Asciicast.parse((yield* caller.get(pathOf(runId))).body)
      assert.strictEqual(Asciicast.markersOf(cast).at(-1), "run ended: exit code 0")
      assert.deepStrictEqual(cast.events.at(-1), { interval: 0, code: "x", data: "0" })
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

describe("a reader of a recording", () => {
  const runId = RunId.make("run-00000000000b")

  /** Entries of the largest recording: a full journal, most of whose characters become escapes. */
  const entries = (() => {
    const pen = RunJournal.makePen()
    const text = "\u007f".repeat(RunJournal.textCharsMax)
    return Array.from({ length: 1100 }).flatMap(() =>
      pen({ type: "output.written", channel: "stdout", from: 0, text }, "2026-01-01T00:00:00.000Z").map(
        ({ entry }) => entry
      )
    )
  })()

  /** Answers in a fiber of its own, as for a request, and gives each piece to a reader. */
  const answered = Effect.fnUntraced(function* (
    take: (piece: Uint8Array) => Effect.Effect<void>,
    { isLostAfter = entries.length }: { readonly isLostAfter?: number } = {}
  ) {
    const limits = ServerLimits.make({ streamIdleSecondsMax: 60, followSecondsMax: 600 })
    const lookUp = () =>
      Effect.succeed({ runId, here: undefined, record: undefined, submitted: undefined, isForeign: false })
    const handle = RecordingHandler.make(limits, { lookUp }, yield* Readers.make(limits))
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: (asked: RunJournal.JournalRequest) =>
        (asked.after ?? 0) > isLostAfter
          ? Effect.fail(new StoreUnavailable({ detail: "is gone", remedy: "Start it" }))
          : Effect.sync(() => RunJournal.pageOf(entries, asked))
    }
    const reading = Effect.gen(function* () {
      const { body } = yield* handle(runId)
      if (body._tag === "Stream") yield* Stream.runForEach(body.stream, take)
    }).pipe(
      Effect.scoped,
      Effect.provideService(
        HttpServerRequest.HttpServerRequest,
        HttpServerRequest.fromWeb(new Request("http://host"))
      ),
      Effect.provideService(CurrentGrant, { id: "grant" } as ExecutionGrant),
      Effect.provideService(RunJournal.RunJournal, journal)
    )
    return yield* Effect.forkChild(reading, { startImmediately: true })
  })

  it.effect("gets at most 32 MiB, in pieces of at most 64 KiB", () =>
    Effect.gen(function* () {
      let bytes = 0
      const fiber = yield* answered((piece) =>
        Effect.sync(() => {
          assert.isAtMost(piece.byteLength, 64 * 1024)
          bytes += piece.byteLength
        })
      )
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(fiber)))
      assert.isAtMost(bytes, 32 * 1024 * 1024)
      assert.isAbove(bytes, 31 * 1024 * 1024)
    })
  )

  /** Takes a piece, and then as long as `more`. Returns when it has the first piece. */
  const reader = Effect.fnUntraced(function* (more: Effect.Effect<void>) {
    const taken = { pieces: 0 }
    const fiber = yield* answered(() =>
      Effect.andThen(
        Effect.sync(() => void (taken.pieces += 1)),
        more
      )
    )
    yield* Await.until(
      "the first piece is there",
      Effect.sync(() => taken.pieces === 1)
    )
    return { fiber, taken }
  })

  it.effect("that does not read is disconnected", () =>
    Effect.gen(function* () {
      const { fiber, taken } = yield* reader(Effect.never)
      yield* TestClock.adjust("121 seconds")
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
      assert.strictEqual(taken.pieces, 1)
    })
  )

  it.effect("that reads slowly gets more, until its time is over", () =>
    Effect.gen(function* () {
      const { fiber, taken } = yield* reader(Effect.sleep("50 seconds"))
      yield* TestClock.adjust("599 seconds")
      assert.isUndefined(fiber.pollUnsafe())
      assert.strictEqual(taken.pieces, 12)
      yield* TestClock.adjust("60 seconds")
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
    })
  )

  it.effect("gets no recording that only looks whole if the journal cannot be read", () =>
    Effect.gen(function* () {
      const fiber = yield* answered(() => Effect.void, { isLostAfter: 100 })
      assert.isTrue(Exit.isFailure(yield* Fiber.await(fiber)))
    })
  )
})
