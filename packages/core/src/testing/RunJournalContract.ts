/** The contract of every `RunJournal`: entries in order, without a gap, in pages, until the journal is closed. */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import * as RunId from "../RunId.ts"
import { type JournalEntry, type JournalEvent, RunJournal } from "../RunJournal.ts"

/** Makes what a journal of a run needs, such as its directory. */
type Prepare = (runId: RunId.RunId) => Effect.Effect<void>

const started: JournalEvent = { type: "run.started" }
const ended: JournalEvent = { type: "run.ended", status: "exited", exitCode: 0 }

const said = (text: string): JournalEvent => ({ type: "message.written", text })

const textsOf = (entries: ReadonlyArray<JournalEntry>) =>
  entries.flatMap((entry) => (entry.type === "message.written" ? [entry.text] : []))

export const suite = <E>(name: string, layer: Layer.Layer<never, E>, prepare: Prepare): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`RunJournal (${name})`, (it) => {
    const prepared = Effect.gen(function* () {
      const journal = yield* RunJournal
      const runId = yield* RunId.generate
      yield* prepare(runId)
      const write = (...events: ReadonlyArray<JournalEvent>) =>
        Effect.forEach(events, (event) => journal.write(runId, event), { discard: true })
      return {
        journal,
        runId,
        write,
        read: (after = 0, limit = 1000) => journal.read({ runId, after, limit })
      }
    })

    it.effect("returns the entries in order, without a gap, in pages", () =>
      Effect.gen(function* () {
        const { journal, read, runId, write } = yield* prepared
        const texts = Array.from({ length: 250 }, (_, at) => `☃ ${at}\n"\\`)
        yield* write(started, ...texts.map(said), ended)
        yield* journal.close(runId)
        const whole = yield* read()
        assert.isTrue(whole?.ended)
        assert.deepStrictEqual(
          whole?.entries.map(({ seq }) => seq),
          Array.from({ length: 252 }, (_, at) => at + 1)
        )
        assert.deepStrictEqual(textsOf(whole?.entries ?? []), texts)
        const paged: Array<JournalEntry> = []
        for (let page = yield* read(0, 100); ; page = yield* read(paged.at(-1)!.seq, 100)) {
          paged.push(...(page?.entries ?? []))
          if (page?.ended === true) break
        }
        assert.deepStrictEqual(paged, whole?.entries)
        for (const after of [252, 2 ** 31, 999_999_999_999_999])
          assert.deepStrictEqual(yield* read(after), { entries: [], ended: true })
      })
    )

    it.effect("returns pages within a size, and at least one entry", () =>
      Effect.gen(function* () {
        const { journal, runId, write } = yield* prepared
        const text = "\u0001".repeat(10_000)
        yield* write(started, ...Array.from({ length: 9 }, () => said(text)), ended)
        yield* journal.close(runId)
        const sizes: Array<number> = []
        for (let after = 0; ;) {
          const page = yield* journal.read({ runId, after, bytesMax: 130_000 })
          sizes.push(page?.entries.length ?? 0)
          after = page?.entries.at(-1)?.seq ?? after
          if (page?.ended !== false) break
        }
        // The first page has the start of the run, and the last one its end.
        assert.deepStrictEqual(sizes, [3, 2, 2, 2, 2])
        assert.lengthOf((yield* journal.read({ runId, after: 4, bytesMax: 1 }))?.entries ?? [], 1)
      })
    )

    it.effect("can be read while it is written", () =>
      Effect.gen(function* () {
        const { journal, read, runId, write } = yield* prepared
        yield* write(started, said("one"))
        yield* Effect.repeat(read(), { until: (page) => page?.entries.length === 2 })
        yield* write(said("two"))
        yield* Effect.repeat(read(2), { until: (page) => page?.entries.length === 1 })
        assert.deepStrictEqual(textsOf((yield* read(1))?.entries ?? []), ["one", "two"])
        assert.isFalse((yield* read())?.ended)
        yield* journal.close(runId)
      })
    )

    it.effect("adds nothing before the run has started, and after it was closed", () =>
      Effect.gen(function* () {
        const { journal, read, runId, write } = yield* prepared
        yield* write(said("early"))
        assert.isUndefined(yield* read())
        yield* write(started, ended)
        yield* journal.close(runId)
        yield* write(said("late"))
        yield* journal.close(runId)
        assert.deepStrictEqual(
          (yield* read())?.entries.map(({ type }) => type),
          ["run.started", "run.ended"]
        )
      })
    )

    it.effect("ends only when its last holder is done", () =>
      Effect.gen(function* () {
        const { journal, read, runId, write } = yield* prepared
        yield* write(started)
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* journal.hold(runId)
            yield* Effect.scoped(journal.hold(runId))
            yield* write(ended)
            yield* journal.close(runId)
            yield* write(said("late"))
          })
        )
        assert.deepStrictEqual(
          (yield* read())?.entries.map(({ type }) => type),
          ["run.started", "message.written", "run.ended"]
        )
        yield* write(said("too late"))
        assert.strictEqual((yield* read())?.entries.length, 3)
      })
    )
  })
