/** Approvals on the terminal of `run`: asked there, and denied without one. */
import * as Approvals from "@cogni/sandbox-core/Approvals"
import type { ApprovalRequest } from "@cogni/sandbox-core/Approval"
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Stdio, Stream } from "effect"
import * as Output from "../src/Output.ts"
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

/** Asks once on a terminal with typed input. */
const answered = (typed: string, terminal = true) =>
  Effect.gen(function* () {
    const asked = yield* Deferred.make<void>()
    /** The text typed ahead has arrived. */
    const early = yield* Deferred.make<void>()
    const memory = Output.makeMemory({ terminal })
    const output = Layer.effect(
      Output.Output,
      Effect.map(Output.Output, (inner) => ({
        ...inner,
        stderr: (data: string | Uint8Array) =>
          Effect.andThen(inner.stderr(data), Effect.asVoid(Deferred.succeed(asked, undefined)))
      }))
    ).pipe(Layer.provide(memory.layer))
    const approvals = yield* Layer.build(
      TerminalApproval.layer.pipe(
        Layer.provide(output),
        Layer.provide(
          Stdio.layerTest({
            // Typed ahead, it would be no answer.
            stdin: Stream.concat(
              Stream.make(new TextEncoder().encode("y\n")),
              Stream.fromEffect(
                Deferred.succeed(early, undefined).pipe(
                  Effect.andThen(Deferred.await(asked)),
                  Effect.as(new TextEncoder().encode(typed))
                )
              )
            ),
            stdinIsTerminal: Effect.succeed(terminal)
          })
        )
      )
    ).pipe(Effect.flatMap((context) => Effect.provideContext(Effect.service(Approvals.Approvals), context)))
    if (terminal) yield* Deferred.await(early)
    const { decidedBy, reason, status } = yield* Approvals.ask(approvals, request, {
      requested: () => Effect.void,
      ended: () => Effect.void
    })
    return { status, reason, decidedBy, shown: memory.said.stderr }
  })

describe("approvals on a terminal", () => {
  it.effect("show the whole arguments and take yes or no", () =>
    Effect.gen(function* () {
      for (const [typed, status] of [
        ["y\n", "approved"],
        ["YES\r\n", "approved"],
        ["n\n", "denied"],
        ["yes please\n", "denied"],
        ["\n", "denied"],
        ["", "denied"]
      ]) {
        const answer = yield* answered(typed!)
        assert.deepStrictEqual([typed, answer.status], [typed, status])
        assert.deepStrictEqual(answer.decidedBy, { type: "operator", id: "terminal" })
        assert.include(answer.shown, '{"text":"\\u{202e}1"}')
      }
    })
  )

  it.effect("deny without a terminal, and say what to do", () =>
    Effect.gen(function* () {
      const { reason, shown, status } = yield* answered("y\n", false)
      assert.deepStrictEqual([status, shown], ["denied", ""])
      assert.include(reason, "Run it in a terminal")
    })
  )
})
