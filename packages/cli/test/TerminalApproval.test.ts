/** Approvals on the terminal of `run`: asked there, and denied without one. */
import * as Approvals from "@cogni/sandbox-core/Approvals"
import * as ApprovalWitness from "@cogni/sandbox-core/ApprovalWitness"
import type { ApprovalRequest } from "@cogni/sandbox-core/Approval"
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { type Cause, Effect, Fiber, Layer, Queue, Stdio, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Output from "../src/Output.ts"
import * as TerminalTurn from "../src/TerminalTurn.ts"
import * as TerminalApproval from "../src/TerminalApproval.ts"

const request: ApprovalRequest = {
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  billingAccountId: "acct",
  requestId: "r1",
  tool: "acme__pay",
  effect: "external_side_effect",
  arguments: '{"text":"\u202e1"}',
  argumentsDigest: "d",
  askedBy: {},
  waitSecondsMax: 60
}

const encode = (text: string) => new TextEncoder().encode(text)

const quiet: ApprovalWitness.ApprovalWitness = { requested: () => Effect.void, ended: () => Effect.void }

/** A terminal of a person who types lines after what is shown, and the code of a question for `CODE`. */
const make = Effect.fnUntraced(function* (terminal = true) {
  const memory = Output.makeMemory({ terminal, columns: 40 })
  const output = yield* Output.Output.pipe(Effect.provide(memory.layer))
  const turn = TerminalTurn.make(output)
  const input = yield* Queue.unbounded<Uint8Array, Cause.Done>()
  const approvals = yield* Layer.build(
    TerminalApproval.layer(turn).pipe(
      Layer.provide(
        Stdio.layerTest({ stdin: Stream.fromQueue(input), stdinIsTerminal: Effect.succeed(terminal) })
      )
    )
  ).pipe(Effect.flatMap((context) => Effect.provideContext(Effect.service(Approvals.Approvals), context)))
  const codes = () =>
    [...memory.said.stderr.matchAll(/\? To approve, type (\w{4}) and/gu)].map(([, code]) => code!)
  return {
    turn,
    codes,
    said: memory.said,
    ask: (changes: Partial<ApprovalRequest> = {}) =>
      Effect.forkChild(ApprovalWitness.ask(approvals, { ...request, ...changes }, quiet), {
        startImmediately: true
      }),
    /** Waits for a number of questions. */
    asked: (count: number) => Effect.repeat(Effect.yieldNow, { until: () => codes().length >= count }),
    type: (text: string) =>
      Effect.andThen(
        Queue.offer(input, encode(text.replace("CODE", codes().at(-1) ?? "none"))),
        Effect.replicateEffect(Effect.yieldNow, 50)
      ),
    end: Queue.end(input)
  }
})

describe("approvals on a terminal", () => {
  it.effect("take the code of the question, or a no, and nothing else", () =>
    Effect.gen(function* () {
      for (const [typed, status] of [
        ["CODE\n", "approved"],
        [" what?\nCODE\r\n", "approved"],
        ["n\n", "denied"],
        ["No\n", "denied"],
        ["y\n1\n2\n3\n4\n", "denied"],
        ["", "denied"]
      ] as const) {
        const { ask, asked, end, said, type } = yield* make()
        const fiber = yield* ask()
        yield* asked(1)
        yield* type(typed)
        if (typed === "") yield* end
        const answer = yield* Fiber.join(fiber)
        assert.deepStrictEqual([typed, answer.status], [typed, status])
        assert.deepStrictEqual(answer.decidedBy, { type: "operator", id: "terminal" })
        assert.include(said.stderr, '│ {"text":"\\u202e1"}\n└ acme__pay (external_side_effect), 15 bytes')
      }
    })
  )

  it.effect("take nothing that was typed before, and no code of a question that has expired", () =>
    Effect.gen(function* () {
      const { ask, asked, codes, type } = yield* make()
      yield* type("y\nyes\nn\n")
      const first = yield* ask()
      yield* asked(1)
      assert.isUndefined(first.pollUnsafe())
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual((yield* Fiber.join(first)).status, "expired")
      const second = yield* ask()
      yield* asked(2)
      yield* type(`${codes()[0]}\n`)
      assert.isUndefined(second.pollUnsafe())
      yield* type("CODE\n")
      assert.strictEqual((yield* Fiber.join(second)).status, "approved")
    })
  )

  it.effect("hold the output of the agent while a question waits, and keep its order", () =>
    Effect.gen(function* () {
      const { ask, asked, said, turn, type } = yield* make()
      yield* turn.others.stdout(encode("working"))
      const fiber = yield* ask()
      yield* asked(1)
      const before = { ...said }
      assert.isTrue(said.stderr.startsWith("\n· A tool call needs your approval\n┌ "), "on a line of its own")
      const forged = "· A tool call needs your approval\n"
      yield* turn.others.stdout(encode(forged))
      yield* turn.others.stderr(encode(forged))
      yield* turn.others.redraw("the agent works")
      yield* turn.others.stdout("last")
      assert.deepStrictEqual({ ...said }, before)
      yield* type("CODE\n")
      yield* Fiber.join(fiber)
      assert.strictEqual(said.stdout, `working${forged}last`)
      assert.strictEqual(said.stderr, `${before.stderr}${forged}`)
    })
  )

  it.effect("say how much output is not shown if it is too much to hold", () =>
    Effect.gen(function* () {
      const { ask, asked, said, turn, type } = yield* make()
      const fiber = yield* ask()
      yield* asked(1)
      yield* turn.others.stdout(new Uint8Array(TerminalTurn.heldBytesMax).fill(0x61))
      yield* turn.others.stdout("beyond")
      assert.strictEqual(said.stdout, "")
      yield* type("n\n")
      yield* Fiber.join(fiber)
      assert.strictEqual(said.stdout.length, TerminalTurn.heldBytesMax)
      assert.include(said.stderr, "· 6 bytes of output are not shown")
    })
  )

  it.effect("show arguments in rows with a bar, however they try to look like a question", () =>
    Effect.gen(function* () {
      const text = `${" ".repeat(200)}\u{1F600}\u200d\u754c\n\u2028\u001b[2J· Approve? ${"x".repeat(100)}`
      const { ask, asked, said, type } = yield* make()
      const fiber = yield* ask({ arguments: JSON.stringify({ text }) })
      yield* asked(1)
      const lines = said.stderr.replace(/^\r\u001b\[K/u, "").split("\n")
      const rows = lines.slice(
        2,
        lines.findIndex((line) => line.startsWith("└"))
      )
      for (const row of rows) {
        assert.isTrue(row.startsWith("│ "), row)
        const columns = [...row].reduce((sum, one) => sum + (/[ -~│]/u.test(one) ? 1 : 2), 0)
        assert.isBelow(columns, 40)
      }
      assert.include(said.stderr, "\\u200d")
      assert.deepStrictEqual(JSON.parse(rows.map((row) => row.slice(2)).join("")), { text })
      yield* type("n\n")
      yield* Fiber.join(fiber)
    })
  )

  it.effect("deny without a terminal, and say what to do", () =>
    Effect.gen(function* () {
      const { ask, said } = yield* make(false)
      const { reason, status } = yield* Effect.flatMap(ask(), Fiber.join)
      assert.deepStrictEqual([status, said.stderr], ["denied", ""])
      assert.include(reason, "Run it in a terminal")
    })
  )
})
