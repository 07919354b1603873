/** Events of an agent in a journal, and back. */
import { type JournalEvent, textCharsMax } from "@cogni/sandbox-core/RunJournal"
import { assert, describe, it } from "@effect/vitest"
import type { AiEvent } from "../src/events/AiEvent.ts"
import { fromJournal, toJournal } from "../src/events/JournalEvents.ts"

const entry = (event: JournalEvent) => ({ seq: 1, at: "2026-01-01T00:00:00.000Z", ...event })

describe("the events of an agent", () => {
  it("are the same after a way through a journal", () => {
    const events: ReadonlyArray<AiEvent> = [
      { type: "text_delta", delta: "In Peru." },
      { type: "tool_call_start", toolCallId: "t1", toolName: "Bash", args: { command: "ls" } },
      { type: "tool_call_start", toolCallId: "t2", toolName: "Bash", args: "ls" },
      { type: "tool_call_result", toolCallId: "t1", result: ["a", { b: 1 }] },
      { type: "tool_call_result", toolCallId: "t2", result: "no such file", isError: true }
    ]
    for (const event of events) assert.deepStrictEqual(fromJournal(entry(toJournal(event)!)), event)
  })

  it("are cut like every text of a journal, and what was cut is read as text", () => {
    const args = { command: "x".repeat(textCharsMax) }
    const cut = toJournal({ type: "tool_call_start", toolCallId: "t", toolName: "Bash", args })!
    const text = JSON.stringify(args).slice(0, textCharsMax)
    assert.deepInclude(cut, { arguments: text })
    assert.deepInclude(fromJournal(entry(cut)), { args: text })
  })

  it("are those of readers: a phase is a status, and what a journal has already is not written again", () => {
    const phase = { type: "phase.ended", phase: "create", durationMs: 1 } as const
    assert.deepStrictEqual(fromJournal(entry(phase)), { type: "status", phase: "create" })
    assert.isUndefined(toJournal({ type: "status", phase: "create" }))
    assert.isUndefined(fromJournal(entry({ type: "run.started" })))
  })
})
