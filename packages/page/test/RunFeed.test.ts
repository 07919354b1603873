/** Tests the events of a run: nothing is missed or repeated, and little is kept. */
import { assert, describe, it } from "@effect/vitest"
import { ApiProblem, isSignedOut } from "../src/ApiProblem.ts"
import * as RunFeed from "../src/RunFeed.ts"
import type { Event } from "../src/RunModel.ts"
import * as RunsClient from "../src/RunsClient.ts"

const at = "2026-11-26T04:00:01.000Z"
const output = (seq: number, text: string): Event => ({
  seq,
  at,
  type: "output.written",
  channel: "stdout",
  from: 0,
  text
})
const ended = (seq: number): Event => ({ seq, at, type: "run.ended", status: "exited", exitCode: 0 })

const encoded = (...events: ReadonlyArray<Event>) =>
  events.map((event) => `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("")

/** Follows a run whose server gives these answers, one for each request. */
const followed = async (...answers: ReadonlyArray<() => Response>) => {
  const asked: Array<string | null> = []
  const client = RunsClient.make({
    fetch: (_url, init) => {
      asked.push(new Headers(init?.headers).get("last-event-id"))
      return Promise.resolve((answers[asked.length - 1] ?? (() => new Response(null, { status: 204 })))())
    }
  })
  let feed = RunFeed.make()
  const { signal } = new AbortController()
  await RunFeed.follow(
    client,
    "run-12345678",
    (change) => (feed = change(feed)),
    signal,
    () => Promise.resolve()
  )
  return { feed, asked }
}

const textOf = ({ output }: RunFeed.Feed) => output.stdout.pieces.map(({ text }) => text).join("")

describe("RunFeed", () => {
  it("resumes after the last event of a stream that broke, and ignores those that it has", async () => {
    const { asked, feed } = await followed(
      () => new Response(encoded(output(1, "a"), output(2, "b"))),
      () => new Response(encoded(output(2, "b"), output(3, "c"), ended(4)))
    )
    assert.deepStrictEqual(asked, [null, "2"])
    assert.strictEqual(textOf(feed), "abc")
    assert.strictEqual(feed.connection, "ended")
  })

  it("skips events that it does not know, and stops at a refusal", async () => {
    const strange = `id: 1\ndata: {"seq":1,"at":"","type":"new.kind"}\n\nid: 2\ndata: <script>\n\n`
    const { feed } = await followed(
      () => new Response(`${strange}${encoded(output(3, "c"))}`),
      () => new Response('{"error":{"reason":"GrantRevoked","message":"gone"}}', { status: 403 })
    )
    assert.strictEqual(textOf(feed), "c")
    assert.deepInclude(feed, { connection: "failed", problem: "gone" })
  })

  it("keeps the newest output, within its limit", () => {
    const large = "x".repeat(1024 * 1024)
    let feed = RunFeed.make()
    for (let seq = 1; seq <= 10; seq++) feed = RunFeed.add(feed, output(seq, large))
    assert.isAtMost(textOf(feed).length, RunFeed.outputCharsMax)
    assert.strictEqual(feed.output.stdout.pieces.at(-1)?.seq, 10)
  })

  it("knows of which channel the run keeps no more", () => {
    const feed = RunFeed.add(RunFeed.make(), { seq: 1, at, type: "output.truncated", channel: "stderr" })
    assert.deepStrictEqual(feed.isCut, { stdout: false, stderr: true })
  })

  it("takes a hundred thousand pieces in no time", () => {
    let feed = RunFeed.make()
    for (let seq = 1; seq <= 100_000; seq++) feed = RunFeed.add(feed, output(seq, "a line of the agent\n"))
    assert.isAtMost(textOf(feed).length, RunFeed.outputCharsMax)
  })

  it("joins the start and the end of a tool, and keeps a bounded number of steps", () => {
    const start: Event = { seq: 1, at, type: "tool.started", toolCallId: "t", tool: "shell", arguments: "{}" }
    const end: Event = {
      seq: 2,
      at: "2026-11-26T04:00:03.000Z",
      type: "tool.ended",
      toolCallId: "t",
      isError: true,
      result: ""
    }
    const [step] = RunFeed.add(RunFeed.add(RunFeed.make(), start), end).steps
    assert.deepInclude(step, { label: "shell", isError: true })
    assert.strictEqual(step!.to! - step!.from, 2000)
    let feed = RunFeed.make()
    for (let seq = 1; seq <= RunFeed.stepsMax + 5; seq++)
      feed = RunFeed.add(feed, { ...start, seq, toolCallId: String(seq) })
    assert.lengthOf(feed.steps, RunFeed.stepsMax)
  })

  it("warns of a spent share of the subagents, and says that the run goes on", () => {
    const exhaustion = { budget: "calls", limit: 6, used: 6 } as const
    const feed = RunFeed.add(RunFeed.make(), { seq: 1, at, type: "subagents.exhausted", exhaustion })
    const [step] = feed.steps
    assert.deepInclude(step, { kind: "warning", label: "share of subagents spent: calls" })
    assert.include(step?.detail, "the main agent goes on")
  })

  it("shows an approval from its request to its decision, and tells that there was one", () => {
    const asked: Event = {
      seq: 1,
      at,
      type: "tool.approval_requested",
      approvalId: "apr-1",
      toolCallId: "t",
      tool: "acme__pay",
      effect: "state_change",
      argumentsDigest: "d",
      expiresAt: at
    }
    const decided: Event = {
      seq: 2,
      at: "2026-11-26T04:00:03.000Z",
      type: "tool.approval_decided",
      approvalId: "apr-1",
      toolCallId: "t",
      decision: "denied"
    }
    const before = RunFeed.add(RunFeed.make(), asked)
    assert.deepStrictEqual([before.approvals, before.steps[0]?.to], [1, undefined])
    const after = RunFeed.add(before, decided)
    assert.strictEqual(after.approvals, 2)
    assert.deepInclude(after.steps[0], { kind: "approval", detail: "denied", isError: true })
    assert.strictEqual(after.steps[0]!.to! - after.steps[0]!.from, 2000)
  })

  it("retries what may pass", () => {
    const of = (status: number | undefined, reason = "x") => new ApiProblem({ status, reason, message: "" })
    assert.deepStrictEqual(
      [of(undefined), of(429), of(503), of(403), of(404)].map(({ isRetryable }) => isRetryable),
      [true, true, true, false, false]
    )
    assert.isTrue(isSignedOut(of(403, "GrantExpired")))
    assert.isFalse(isSignedOut(of(403, "SandboxNotAllowed")))
  })
})
