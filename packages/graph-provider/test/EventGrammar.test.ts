/** The grammar of events: the streams that it accepts, and its enforcement on any stream. */
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import { ofNothing } from "../src/events/UsageFact.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"

const fact = ofNothing({
  runId: RunId.make("run-000000000001"),
  attempt: 0,
  graphId: "sandbox:agent",
  billingAccountId: "acct",
  virtualKeyId: "vk"
})
const failure = { error: "internal", reason: "OomKilled", message: "it needed more" } as const

/** Returns the state after all events, or a string if one is not allowed. */
const judge = (events: ReadonlyArray<AiEvent>) =>
  events.reduce<Result.Result<EventGrammar.Grammar, string>>(
    (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
    Result.succeed(EventGrammar.initial)
  )

/** Filters events with the grammar, and completes them. */
const held = (events: ReadonlyArray<AiEvent>): ReadonlyArray<AiEvent> => {
  let state: EventGrammar.Grammar = EventGrammar.initial
  const through = events.filter((event) => {
    const next = EventGrammar.next(state, event)
    if (Result.isSuccess(next)) state = next.success
    return Result.isSuccess(next)
  })
  return [...through, ...EventGrammar.complete(state, fact, failure)]
}

const text: AiEvent = { type: "text_delta", delta: "x" }
const final: AiEvent = { type: "assistant_final", content: "x" }
const usage: AiEvent = { type: "usage_report", fact }
const error: AiEvent = { type: "error", error: "internal" }
const done: AiEvent = { type: "done" }

describe("EventGrammar", () => {
  it.each<[string, ReadonlyArray<AiEvent>]>([
    ["an answer", [text, text, final, usage, usage, done]],
    ["an answer without text before it", [final, usage, done]],
    ["a failure", [text, usage, error, done]],
    ["an end without an answer or an error", [usage, done]]
  ])("accepts %s as a complete stream", (_, events) => {
    const end = judge(events)
    assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
  })

  it.each<[string, ReadonlyArray<AiEvent>]>([
    ["anything after done", [usage, done, text]],
    ["a second done", [usage, done, done]],
    ["a second error", [usage, error, error]],
    ["an error after an answer", [final, usage, error]],
    ["an error before the usage", [error]],
    ["done before the usage", [text, done]],
    ["usage after the error", [usage, error, usage]],
    ["text after the answer", [final, text]],
    ["text after the usage", [usage, text]],
    ["a second answer", [final, final]]
  ])("rejects %s", (_, events) => {
    assert.isTrue(Result.isFailure(judge(events)))
  })

  it("ends a stream completely, whatever the ending", () => {
    for (const content of [undefined, "", "x"]) {
      for (const failed of [undefined, failure]) {
        const events = [text, ...EventGrammar.ending({ content, facts: [fact, fact], failure: failed })]
        const end = judge(events)
        assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
        assert.strictEqual(events.filter(({ type }) => type === "error").length, failed === undefined ? 0 : 1)
      }
    }
  })

  it("completes a stream that ended after its usage with an error, unless it has an answer", () => {
    const types = (events: ReadonlyArray<AiEvent>) => held(events).map(({ type }) => type)
    assert.deepStrictEqual(types([text, usage]), ["text_delta", "usage_report", "error", "done"])
    assert.deepStrictEqual(types([final, usage]), ["assistant_final", "usage_report", "done"])
    assert.deepStrictEqual(types([usage, error]), ["usage_report", "error", "done"])
    assert.deepStrictEqual(types([final]), ["assistant_final", "usage_report", "done"])
  })

  it.prop(
    "makes any stream complete: one done, last; at most one error, before it; at least one usage report",
    [Schema.Array(AiEvent)],
    ([events]) => {
      const whole = held(events)
      const end = judge(whole)
      assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
      assert.strictEqual(whole.at(-1)?.type, "done")
      assert.strictEqual(whole.filter(({ type }) => type === "done").length, 1)
      assert.isAtMost(whole.filter(({ type }) => type === "error").length, 1)
      assert.isAtLeast(whole.filter(({ type }) => type === "usage_report").length, 1)
      // A complete stream does not change.
      assert.deepStrictEqual(held(whole), whole)
    },
    { arbitrary: { runs: 10_000, seed: "grammar-1" } }
  )
})
