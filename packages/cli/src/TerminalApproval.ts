/**
 * Approvals of tool calls that the terminal of `run` answers. Without a terminal, every call is denied.
 *
 * The question shows the whole arguments as they are, with characters that act on a terminal made visible.
 */
import type { Approval } from "@cogni/sandbox-core/Approval"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import { Effect, Layer, Queue, Semaphore, Stdio, Stream } from "effect"
import * as Output from "./Output.ts"

/** The activity while a call waits. */
export const waiting = "waiting for your decision: type y or n, then Enter"

/** Describes how an approval ended. */
export const ended = ({ status, tool }: Approval): string =>
  status === "approved"
    ? `the call of ${tool} was approved`
    : `the call of ${tool} did not run: ${status === "denied" ? "it was denied" : `the approval is ${status}`}`

const withoutTerminal =
  "there is no terminal to ask on. Run it in a terminal, allow the tool with --tool, or use serve"

/** Longest kept answer, in characters. */
const answerCharsMax = 1000

/** For a run that has tools to ask for. It reads the terminal's input until it ends. */
export const layer: Layer.Layer<never, never, Output.Output | Stdio.Stdio> = Layer.effect(
  Approvals.Approvals,
  Effect.gen(function* () {
    const output = yield* Output.Output
    const stdio = yield* Stdio.Stdio
    const isTerminal = (yield* stdio.stdinIsTerminal) && output.stderrIsTerminal
    const turn = yield* Semaphore.make(1)
    const lines = yield* Queue.sliding<string>(8)
    let isClosed = false
    // Reads from the beginning, so that what is typed before a question is no answer to it.
    if (isTerminal)
      yield* stdio.stdin.pipe(
        Stream.decodeText(),
        Stream.splitLines,
        Stream.runForEach((line) => Queue.offer(lines, line.slice(0, answerCharsMax))),
        Effect.ignore,
        // The end of the input answers the question that waits, and every later one, with no.
        Effect.andThen(
          Effect.suspend(() => {
            isClosed = true
            return Queue.offer(lines, "")
          })
        ),
        Effect.forkScoped
      )

    const ask = Effect.fnUntraced(function* (approval: Approval) {
      if (!isTerminal) return { decision: "deny" as const, reason: withoutTerminal }
      yield* Queue.clear(lines)
      const wasClosed = isClosed
      yield* output.redraw("")
      yield* output.stderr(question(approval))
      const line = wasClosed ? "" : yield* Queue.take(lines)
      return /^\s*(?:y|yes)\s*$/iu.test(line)
        ? { decision: "approve" as const }
        : { decision: "deny" as const, reason: "the user said no" }
    })

    return yield* Approvals.makeFunction((approval) => turn.withPermit(ask(approval)), {
      type: "operator",
      id: "terminal"
    })
  })
)

const question = ({ arguments: text, effect, tool }: Approval): string =>
  `· ${tool} (${effect}) needs your approval. Its arguments:\n${text}\n· Approve this call? Type y or n, then Enter\n`
