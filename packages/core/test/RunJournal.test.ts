/** Tests the journal in memory, and how events become entries of a limited size. */
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import * as RunJournalContract from "@cogni/sandbox-core/testing/RunJournalContract"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"

const at = "2026-01-01T00:00:00.000Z"

RunJournalContract.suite("memory", RunJournal.layerMemory, () => Effect.void)

const output = (text: string): RunJournal.JournalEvent => ({
  type: "output.written",
  channel: "stdout",
  from: 7,
  text
})

describe("a pen", () => {
  it("splits long output into entries with the offset of each, and no character in two of them", () => {
    const text = `${"a".repeat(RunJournal.textCharsMax - 1)}\u{1F600}${"é".repeat(RunJournal.textCharsMax)}`
    const entries = RunJournal.makePen()(output(text), at).map(({ entry }) => entry)
    let from = 7
    let whole = ""
    for (const entry of entries) {
      if (entry.type !== "output.written") throw new Error(entry.type)
      assert.strictEqual(entry.from, from)
      assert.isAtMost(entry.text.length, RunJournal.textCharsMax)
      assert.isTrue(entry.text.isWellFormed())
      from += Buffer.byteLength(entry.text)
      whole += entry.text
    }
    assert.strictEqual(whole, text)
    assert.isAbove(entries.length, 2)
  })

  it("ends output once, when the journal is full, and still writes the end of the run", () => {
    const bytesMax = 512 * 1024
    const pen = RunJournal.makePen(bytesMax)
    const written = [
      { type: "run.started" } as const,
      ...Array.from({ length: 60 }, () => output("a".repeat(16_000)))
    ]
      .flatMap((event) => pen(event, at))
      // More than fits into what the last output leaves by chance.
      .concat(
        Array.from({ length: 500 }, () =>
          pen({ type: "phase.ended", phase: "agent", durationMs: 1 }, at)
        ).flat()
      )
      .concat(pen({ type: "run.ended", status: "exited", exitCode: 0 }, at))
    const types = written.map(({ entry }) => entry.type)
    assert.strictEqual(types.filter((type) => type === "journal.truncated").length, 1)
    assert.strictEqual(types.filter((type) => type === "phase.ended").length, 500)
    assert.strictEqual(types.at(-1), "run.ended")
    assert.deepStrictEqual(
      written.map(({ entry }) => entry.seq),
      written.map((_, index) => index + 1)
    )
    assert.isAtMost(
      written.reduce((sum, { line }) => sum + Buffer.byteLength(line), 0),
      bytesMax
    )
  })

  it("cuts the arguments and results of tools", () => {
    const long = "x".repeat(RunJournal.textCharsMax * 2)
    const [call] = RunJournal.makePen()(
      { type: "tool.started", toolCallId: long, tool: long, arguments: long },
      at
    )
    assert.isAtMost(call!.line.length, RunJournal.textCharsMax + 2200)
  })
})
