/** Tests journals in the directories of runs. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournalContract from "@cogni/sandbox-core/testing/RunJournalContract"
import * as FileRunJournal from "@cogni/sandbox-docker/FileRunJournal"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll } from "vitest"

const directory = mkdtempSync(join(tmpdir(), "cogni-journal-"))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const made = (runId: string) =>
  Effect.sync(() => void mkdirSync(join(directory, "runs", runId), { recursive: true }))

const fileOf = (runId: string) => join(directory, "runs", runId, "journal.jsonl")

RunJournalContract.suite("files", FileRunJournal.layer({ directory }), made)

describe("FileRunJournal", () => {
  const runId = RunId.make("run-000000000001")

  it.effect("is private, and another process reads it while it is written", () =>
    Effect.gen(function* () {
      yield* made(runId)
      const writer = FileRunJournal.make({ directory })
      const reader = FileRunJournal.make({ directory })
      yield* writer.write(runId, { type: "run.started" })
      yield* Effect.repeat(reader.read({ runId }), { until: (page) => page?.entries.length === 1 })
      assert.strictEqual(statSync(fileOf(runId)).mode & 0o777, 0o600)
      yield* writer.write(runId, { type: "run.ended", status: "closed" })
      yield* writer.close(runId)
      const page = yield* reader.read({ runId, after: 1 })
      assert.deepStrictEqual([page?.entries.length, page?.ended], [1, true])
    })
  )

  it.effect("skips an incomplete line, and lines of a later version", () =>
    Effect.gen(function* () {
      const own = RunId.make("run-000000000002")
      yield* made(own)
      const journal = FileRunJournal.make({ directory })
      yield* journal.write(own, { type: "run.started" })
      yield* journal.close(own)
      appendFileSync(fileOf(own), '{"seq":2,"at":"x","type":"later"}\n{"seq":3,"at":"x","type":"posture.ver')
      assert.strictEqual((yield* journal.read({ runId: own }))?.entries.length, 1)
      appendFileSync(fileOf(own), 'ified"}\n')
      const page = yield* journal.read({ runId: own, after: 1 })
      assert.deepStrictEqual(
        page?.entries.map(({ seq }) => seq),
        [3]
      )
    })
  )

  it.effect("never fails a run: a journal that cannot be written is given up with one warning", () =>
    Effect.gen(function* () {
      const own = RunId.make("run-000000000003")
      const heard: Array<string> = []
      const logger = Logger.make(({ message }) => void heard.push(String(message)))
      const journal = FileRunJournal.make({ directory })
      yield* Effect.gen(function* () {
        yield* journal.write(own, { type: "run.started" })
        yield* journal.write(own, { type: "message.written", text: "x" })
        yield* journal.close(own)
      }).pipe(Effect.provide(Logger.layer([logger])))
      assert.isFalse(existsSync(fileOf(own)))
      assert.strictEqual(heard.length, 1)
      assert.include(heard[0], "the journal of run run-000000000003 is incomplete")
    })
  )

  it.effect("follows no link", () =>
    Effect.gen(function* () {
      const own = RunId.make("run-000000000004")
      yield* made(own)
      symlinkSync(fileOf(runId), fileOf(own))
      const error = yield* Effect.flip(FileRunJournal.make({ directory }).read({ runId: own }))
      assert.strictEqual(error._tag, "HostFailed")
    })
  )
})
