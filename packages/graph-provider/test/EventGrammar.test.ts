/** The grammar of events: what it lets through, and that any stream at all can be held to it. */
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

/** The state after all of them; a string where one may not come. */
const judge = (events: ReadonlyArray<AiEvent>) =>
  events.reduce<Result.Result<EventGrammar.Grammar, string>>(
    (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
    Result.succeed(EventGrammar.initial)
  )

/** Whatever a provider says, as it is let through. */
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
    ["an answer of nothing but its end", [final, usage, done]],
    ["a failure", [text, usage, error, done]],
    ["an end that is neither", [usage, done]]
  ])("%s is a whole stream", (_, events) => {
    const end = judge(events)
    assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
  })

  it.each<[string, ReadonlyArray<AiEvent>]>([
    ["anything after done", [usage, done, text]],
    ["a second done", [usage, done, done]],
    ["a second error", [usage, error, error]],
    ["an error after an answer", [final, usage, error]],
    ["an error before what was used", [error]],
    ["done before what was used", [text, done]],
    ["what was used after the error", [usage, error, usage]],
    ["text after the answer", [final, text]],
    ["text after what was used", [usage, text]],
    ["a second answer", [final, final]]
  ])("%s may not come", (_, events) => {
    assert.isTrue(Result.isFailure(judge(events)))
  })

  it("an ending is always the end of a whole stream", () => {
    for (const content of [undefined, "", "x"]) {
      for (const failed of [undefined, failure]) {
        const events = [text, ...EventGrammar.ending({ content, facts: [fact, fact], failure: failed })]
        const end = judge(events)
        assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
        assert.strictEqual(events.filter(({ type }) => type === "error").length, failed === undefined ? 0 : 1)
      }
    }
  })

  it("a stream that ended after what was used is a failure, unless it had answered", () => {
    const types = (events: ReadonlyArray<AiEvent>) => held(events).map(({ type }) => type)
    assert.deepStrictEqual(types([text, usage]), ["text_delta", "usage_report", "error", "done"])
    assert.deepStrictEqual(types([final, usage]), ["assistant_final", "usage_report", "done"])
    assert.deepStrictEqual(types([usage, error]), ["usage_report", "error", "done"])
    assert.deepStrictEqual(types([final]), ["assistant_final", "usage_report", "done"])
  })

  it.prop(
    "any stream of events, held to the grammar, is whole: one done, last; one error at most, before it; usage",
    [Schema.Array(AiEvent)],
    ([events]) => {
      const whole = held(events)
      const end = judge(whole)
      assert.isTrue(Result.isSuccess(end) && end.success.phase === "done")
      assert.strictEqual(whole.at(-1)?.type, "done")
      assert.strictEqual(whole.filter(({ type }) => type === "done").length, 1)
      assert.isAtMost(whole.filter(({ type }) => type === "error").length, 1)
      assert.isAtLeast(whole.filter(({ type }) => type === "usage_report").length, 1)
      // What was whole already is left alone.
      assert.deepStrictEqual(held(whole), whole)
    },
    { arbitrary: { runs: 10_000, seed: "grammar-1" } }
  )
})
