/**
 * Approvals of tool calls that the terminal of `run` answers. Without a terminal, every call is denied.
 *
 * Nothing else is written while a question waits (`TerminalTurn`), and its arguments cannot look like a question
 * (`ApprovalText`). Only a code that is new for each question approves, so neither what was typed before nor the answer
 * to another question can.
 */
import type { Approval } from "@cogni/sandbox-core/Approval"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import { Effect, Layer, Queue, Stdio, Stream } from "effect"
import { randomInt } from "node:crypto"
import * as ApprovalText from "./ApprovalText.ts"
import { Output } from "./Output.ts"
import * as TerminalTurn from "./TerminalTurn.ts"

/** The activity while a call waits. */
export const waiting = "a call waits for your decision"

/** Describes how an approval ended. */
export const ended = ({ status, tool }: Approval): string =>
  status === "approved"
    ? `the call of ${tool} was approved`
    : `the call of ${tool} did not run: ${status === "denied" ? "it was denied" : `the approval is ${status}`}`

const withoutTerminal =
  "there is no terminal to ask on. Run it in a terminal, allow the tool with --tool, or use serve"

/** Longest kept answer, in characters. */
const answerCharsMax = 1000

/** Lines that are neither the code nor a no, before the call is denied. */
const attemptsMax = 5

/** Letters and digits that are hard to confuse. */
const alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
const codeCharacters = 4

const newCode = (): string =>
  Array.from({ length: codeCharacters }, () => alphabet[randomInt(alphabet.length)]).join("")

/** Gives work the approvals of the terminal if it has tools to ask for. */
export const around = <A, E, R>(
  askTools: ReadonlyArray<string>,
  work: (approvals: Layer.Layer<never, never, Stdio.Stdio>) => Effect.Effect<A, E, R>
) =>
  askTools.length === 0
    ? work(Layer.empty)
    : Effect.flatMap(Output, (output) => {
        const turn = TerminalTurn.make(output)
        return Effect.provideService(work(layer(turn)), Output, turn.others)
      })

/** For a run that has tools to ask for. It reads the terminal's input until it ends. */
export const layer = ({ ask }: TerminalTurn.TerminalTurn): Layer.Layer<never, never, Stdio.Stdio> =>
  Layer.unwrap(
    Effect.gen(function* () {
      const stdio = yield* Stdio.Stdio
      const hasInput = yield* stdio.stdinIsTerminal
      const typed: Typed = { lines: yield* Queue.sliding<string | undefined>(8), isEnded: false }
      // Reads from the beginning, so that what is typed before a question is no answer to it.
      if (hasInput)
        yield* stdio.stdin.pipe(
          Stream.decodeText(),
          Stream.splitLines,
          Stream.runForEach((line) =>
            Queue.offer(typed.lines, line.slice(0, answerCharsMax).trim().toLowerCase())
          ),
          Effect.ignore,
          // The end of the input answers the question that waits, and every later one, with no.
          Effect.andThen(
            Effect.suspend(() => {
              typed.isEnded = true
              return Queue.offer(typed.lines, undefined)
            })
          ),
          Effect.forkScoped
        )
      return Approvals.layerFunction(
        (approval) =>
          ask((output) =>
            hasInput && output.stderrIsTerminal
              ? decide(approval, typed, output)
              : Effect.succeed(denied(withoutTerminal))
          ),
        { type: "operator", id: "terminal" }
      )
    })
  )

/** The typed lines, and `undefined` when the input has ended. */
interface Typed {
  readonly lines: Queue.Queue<string | undefined>
  isEnded: boolean
}

const decide = Effect.fnUntraced(function* (approval: Approval, typed: Typed, output: Output["Service"]) {
  const code = newCode()
  yield* output.stderr(question(approval, code, output.columns()))
  // Forgets what was typed before the question.
  yield* Queue.clear(typed.lines)
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    const line = typed.isEnded ? undefined : yield* Queue.take(typed.lines)
    if (line === undefined) return denied("the terminal's input has ended")
    if (line === code) return { decision: "approve" as const }
    if (line === "n" || line === "no") return denied("the user said no")
    yield* output.stderr(`  That is not the code. ${howTo(code)}\n`)
  }
  return denied(`the user typed something else ${attemptsMax} times`)
})

const denied = (reason: string) => ({ decision: "deny" as const, reason })

const howTo = (code: string) => `To approve, type ${code} and press Enter. To deny, type n`

const question = (approval: Approval, code: string, columns: number): string =>
  [
    "· A tool call needs your approval",
    ...ApprovalText.block(approval, columns),
    `· Approve this call of ${approval.tool}? ${howTo(code)}`
  ]
    .map((line) => `${line}\n`)
    .join("")
