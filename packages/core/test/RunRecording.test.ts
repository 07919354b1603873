/** Tests recordings with a strict reader of asciicast v3 that shares no code with their writer. */
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import * as RunRecording from "@cogni/sandbox-core/RunRecording"
import type { Outcome, RunRecord } from "@cogni/sandbox-core/RunRecord"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Schema, Stream } from "effect"
import * as Asciicast from "../../../test/harness/Asciicast.ts"
import { runId, runner, spec } from "./Specs.ts"

const at = (millis: number) => new Date(Date.UTC(2026, 0, 1) + millis).toISOString()

const numbered = (
  events: ReadonlyArray<readonly [millis: number, event: RunJournal.JournalEvent]>
): ReadonlyArray<RunJournal.JournalEntry> =>
  events.map(([millis, event], index) => ({ seq: index + 1, at: at(millis), ...event }))

const output = (text: string, channel: "stdout" | "stderr" = "stdout"): RunJournal.JournalEvent => ({
  type: "output.written",
  channel,
  from: 0,
  text
})

const fileOf = (entries: ReadonlyArray<RunJournal.JournalEntry>, bytesMax?: number): string => {
  const writer = RunRecording.makeWriter({ title: runId, bytesMax })
  return entries.map(writer.add).join("") + writer.end()
}

const castOf = (entries: ReadonlyArray<RunJournal.JournalEntry>) => Asciicast.parse(fileOf(entries))

const millisOf = ({ events }: Asciicast.Cast) =>
  events.reduce((sum, { interval }) => sum + Math.round(interval * 1000), 0)

/** A journal that is only read. */
const journalThat = (read: (asked: RunJournal.JournalRequest) => RunJournal.JournalPage | undefined) =>
  Layer.succeed(RunJournal.RunJournal, {
    write: () => Effect.void,
    close: () => Effect.void,
    hold: () => Effect.void,
    read: (asked) => Effect.sync(() => read(asked))
  })

/** A journal of these entries. */
const journalOf = (entries: ReadonlyArray<RunJournal.JournalEntry> | undefined) =>
  journalThat((asked) => entries && RunJournal.pageOf(entries, asked))

const opened = Effect.fnUntraced(function* (record?: RunRecord) {
  const recording = yield* RunRecording.open(runId, { record })
  return recording && Asciicast.parse((yield* Stream.runCollect(recording)).join(""))
})

const Piece = Schema.Struct({
  /** A clock can go back. */
  millis: Schema.Int.check(Schema.isBetween({ minimum: -5000, maximum: 100_000 })),
  text: Schema.String,
  isError: Schema.Boolean
})

const Cut = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 60 }))

/** Splits a text at these places. */
const split = (text: string, cuts: ReadonlyArray<number>): ReadonlyArray<string> => {
  const places = [...new Set([0, ...cuts.filter((cut) => cut < text.length), text.length])].toSorted(
    (a, b) => a - b
  )
  return places.slice(1).map((to, index) => text.slice(places[index], to))
}

const letters = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5lM7n"

const credentials = [
  `sk-proj-${letters}`,
  `ghp_${letters.slice(0, 36)}`,
  `github_pat_${letters}`,
  "AKIA0123456789ABCDEF",
  `xoxb-${letters}`
] as const

describe("a writer of recordings", () => {
  it.prop(
    "keeps all output as text, with intervals that are never negative and sum to the last time",
    [Schema.Array(Piece)],
    ([pieces]) => {
      const entries = numbered(
        pieces.map(({ isError, millis, text }) => [millis, output(text, isError ? "stderr" : "stdout")])
      )
      const cast = castOf(entries)
      assert.strictEqual(Asciicast.outputOf(cast), pieces.map(({ text }) => text.toWellFormed()).join(""))
      const [first = 0] = pieces.map(({ millis }) => millis)
      assert.strictEqual(millisOf(cast), Math.max(first, ...pieces.map(({ millis }) => millis)) - first)
      assert.strictEqual(cast.events.length, pieces.length)
    }
  )

  it.prop(
    "has no credential that the run wrote, however it was split, and the times and the length of all output",
    [Schema.Array(Cut), Schema.Literals(credentials)],
    ([cuts, secret]) => {
      const text = `set TOKEN=${secret}\nready\n`
      const whole = split(text, cuts)
      const entries = numbered(
        whole.flatMap((piece, index): ReadonlyArray<readonly [number, RunJournal.JournalEvent]> => [
          [index * 1000, output(piece)],
          [index * 1000 + 500, index % 2 === 0 ? output("warning", "stderr") : { type: "posture.verified" }]
        ])
      )
      const file = fileOf(entries)
      const cast = Asciicast.parse(file)
      const shown = Asciicast.outputOf(cast).replaceAll("warning", "")
      assert.notInclude(shown, secret)
      const parts = Array.from({ length: secret.length - 7 }, (_, from) => secret.slice(from, from + 8))
      assert.deepStrictEqual(
        parts.filter((part) => shown.includes(part)),
        []
      )
      assert.strictEqual(shown.length, text.length)
      assert.match(shown, /^set TOKEN=.*\nready\n$/su)
      assert.deepStrictEqual(
        cast.events.map(({ interval }) => Math.round(interval * 1000)),
        entries.map((_, index) => (index === 0 ? 0 : 500))
      )
    }
  )

  it("waits no longer for the end of a credential than for a bounded number of entries", () => {
    const secret = "ghp_0123456789"
    const noise = Array.from({ length: 1200 }, (_, n) => [n, output("x", "stderr")] as const)
    const writer = RunRecording.makeWriter({ title: runId })
    const entries = numbered([[0, output(secret)], ...noise])
    const before = entries.slice(0, 900).map(writer.add).join("")
    assert.strictEqual(Asciicast.outputOf(Asciicast.parse(before)), "")
    const file = before + entries.slice(900).map(writer.add).join("")
    assert.strictEqual(
      Asciicast.outputOf(Asciicast.parse(file)),
      "*".repeat(secret.length) + "x".repeat(1200)
    )
  })

  it("writes a header alone for a run without entries", () => {
    const { events, header } = castOf([])
    assert.deepStrictEqual(header, { version: 3, term: { cols: 80, rows: 24 }, title: runId })
    assert.deepStrictEqual(events, [])
  })

  it("counts no time that cannot be read", () => {
    const timeless = { ...numbered([[0, output("a")]])[0]!, at: "soon" }
    const timed = numbered([
      [1000, output("b")],
      [1500, output("c")]
    ])
    const { events, header } = castOf([timeless, timed[0]!, timeless, timed[1]!])
    assert.isUndefined(header.timestamp)
    assert.deepStrictEqual(
      events.map(({ interval }) => interval),
      [0, 0, 0, 0.5]
    )
  })

  it("marks the stages of a run, and ends with its exit code", () => {
    const cast = castOf(
      numbered([
        [0, { type: "run.started" }],
        [5, { type: "phase.ended", phase: "create", durationMs: 5 }],
        [250, { type: "posture.verified" }],
        [1250, output("a\r\nb\n")],
        [1300, { type: "tool.started", toolCallId: "t", tool: "shell", arguments: "{}" }],
        [1500, { type: "output.truncated", channel: "stderr" }],
        [2000, { type: "phase.ended", phase: "agent", durationMs: 1750 }],
        [2100, { type: "run.ended", status: "exited", exitCode: 3 }]
      ])
    )
    assert.strictEqual(cast.header.timestamp, Date.UTC(2026, 0, 1) / 1000)
    assert.deepStrictEqual(
      cast.events.map(({ code, data, interval }) => [interval, code, data]),
      [
        [0, "m", "run started"],
        [0.25, "m", "agent started"],
        [1, "o", "a\r\r\nb\r\n"],
        [0.25, "m", "stderr truncated"],
        [0.5, "m", "agent ended"],
        [0.1, "m", "run ended: exit code 3"],
        [0, "x", "3"]
      ]
    )
  })

  it("names the reason of a run that failed, and has no exit code then", () => {
    for (const reason of ["OomKilled", "TimedOut"]) {
      const cast = castOf(numbered([[0, { type: "run.ended", status: "failed", reason }]]))
      assert.deepStrictEqual(Asciicast.markersOf(cast), [`run ended: ${reason}`])
      assert.strictEqual(cast.events.at(-1)?.code, "m")
    }
  })

  it("writes no character that acts on a terminal or ends a line, whatever the output has", () => {
    const hostile = "\u001b[2J\u009b2J\u0085\u2028\u2029\u007f\0\u202e#"
    const file = fileOf(numbered([[0, output(hostile)]]))
    // eslint-disable-next-line no-control-regex
    assert.notMatch(file, /[\0-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029]/u)
    assert.strictEqual(Asciicast.outputOf(Asciicast.parse(file)), hostile)
  })

  it("ends output once when it is full, and still marks the end of the run", () => {
    const bytesMax = 512 * 1024
    const file = fileOf(
      numbered([
        [0, { type: "run.started" }],
        ...Array.from({ length: 60 }, (_, index) => [index, output("a".repeat(16_000))] as const),
        [99, output("b")],
        [100, { type: "run.ended", status: "exited", exitCode: 0 }]
      ]),
      bytesMax
    )
    assert.isAtMost(Buffer.byteLength(file), bytesMax)
    const cast = Asciicast.parse(file)
    assert.deepStrictEqual(Asciicast.markersOf(cast), [
      "run started",
      "output truncated: the recording is full",
      "run ended: exit code 0"
    ])
    assert.notInclude(Asciicast.outputOf(cast), "b")
    assert.strictEqual(cast.events.at(-1)?.code, "x")
  })
})

describe("the recording of a run", () => {
  const entries = numbered([
    [0, { type: "run.started" }],
    [10, output("so far\n")]
  ])

  it.effect("is undefined without a journal", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* opened())
    }).pipe(Effect.provide(journalOf(undefined)))
  )

  it.effect("fails if the journal is deleted while it is read: it never only looks whole", () =>
    Effect.gen(function* () {
      const failure = yield* Effect.flip(opened())
      assert.strictEqual(
        failure.message,
        "the run store has no journal of the run any more. The run was deleted while its recording was read"
      )
    }).pipe(
      Effect.provide(
        journalThat((asked) => (asked.limit === 1 ? RunJournal.pageOf(entries, asked) : undefined))
      )
    )
  )

  it.effect("has no end while the run is under way", () =>
    Effect.gen(function* () {
      const cast = yield* opened()
      assert.deepStrictEqual(cast && Asciicast.markersOf(cast), ["run started"])
      assert.strictEqual(cast && Asciicast.outputOf(cast), "so far\n")
    }).pipe(Effect.provide(journalOf(entries)))
  )

  it.effect("has the recorded end of a run whose process was killed", () =>
    Effect.gen(function* () {
      const outcome: Outcome = { status: "abandoned" }
      const cast = yield* opened({ endedAt: at(510), outcome } as RunRecord)
      assert.deepStrictEqual(cast?.events.at(-1), { interval: 0.5, code: "m", data: "run ended: abandoned" })
    }).pipe(Effect.provide(journalOf(entries)))
  )

  it.effect("is read piece by piece: 10 MB are never in memory", () => {
    const total = 700
    let read = 0
    let written = 0
    let aheadMax = 0
    const journal = journalThat(({ after = 0, limit = 1000 }) => {
      const count = Math.min(limit, total - after)
      if (limit > 1) read += count
      aheadMax = Math.max(aheadMax, read - written)
      const text = "a".repeat(RunJournal.textCharsMax)
      const page = Array.from({ length: count }, (_, index) => ({
        ...numbered([[0, output(text)]])[0]!,
        seq: after + index + 1
      }))
      return { entries: page, ended: false }
    })
    return Effect.gen(function* () {
      const recording = yield* RunRecording.open(runId)
      let bytes = 0
      yield* Stream.runForEach(recording!, (lines) =>
        Effect.sync(() => {
          bytes += lines.length
          written += lines.split("\n").length - (written === 0 ? 2 : 1)
        })
      )
      assert.isAbove(bytes, 10_000_000)
      assert.strictEqual(written, total)
      assert.isAtMost(aheadMax, 100)
    }).pipe(Effect.provide(journal))
  })

  const recorded = (program: Parameters<typeof runner>[0], input = spec) =>
    Effect.gen(function* () {
      const journal = yield* RunJournal.makeMemory
      return yield* Effect.gen(function* () {
        const result = yield* SandboxRunner.use((one) => one.run(input))
        return { cast: yield* opened(), output: result.output }
      }).pipe(Effect.provide(runner(program)), Effect.provideService(RunJournal.RunJournal, journal))
    })

  it.effect("has the text that the run keeps: split characters, invalid bytes, and where it was cut", () =>
    Effect.gen(function* () {
      const { cast, output } = yield* recorded(
        {
          program: ({ stderr, stdout }) =>
            Effect.gen(function* () {
              yield* stdout(Uint8Array.of(0xe2, 0x98))
              yield* stderr(Uint8Array.of(0xff, 0x62))
              yield* stdout(Uint8Array.of(0x83, 0x0a))
              yield* stderr("c".repeat(20))
              yield* stdout(Uint8Array.of(0xe2))
              return 7
            })
        },
        { ...spec, limits: { outputRetainedBytesMax: 10 } }
      )
      assert.deepStrictEqual([output.stdout.text, output.stderr.text], ["☃\n\uFFFD", "\uFFFDbcccccccc"])
      assert.strictEqual(cast && Asciicast.outputOf(cast), "\uFFFDb☃\ncccccccc\uFFFD")
      assert.deepStrictEqual(cast && Asciicast.markersOf(cast), [
        "run started",
        "agent started",
        "stderr truncated",
        "agent ended",
        "run ended: exit code 7"
      ])
      assert.deepStrictEqual(cast?.events.at(-1)?.data, "7")
    })
  )
})
