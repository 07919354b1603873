/**
 * Keeps a terminal for a question: while one waits for its answer, nothing else is written.
 *
 * The output of others is held until then, also that of an agent, which could otherwise print a question of its own.
 * A writer does not wait for the person, so a run also ends while a question waits. Output beyond the limit is only
 * recorded.
 */
import { Effect, Semaphore } from "effect"
import type { Output } from "./Output.ts"

export interface TerminalTurn {
  /** The output for everything that is no question. */
  readonly others: Output["Service"]
  /** Asks a question. It writes to the output that it gets, at the beginning of a line. */
  readonly ask: <A, E, R>(
    question: (output: Output["Service"]) => Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E, R>
}

/** Size of the output that is held while a question waits. */
export const heldBytesMax = 256 * 1024

/** Output that is held: what to write later, in order. */
interface Held {
  readonly writes: Array<Effect.Effect<void, unknown>>
  bytes: number
  droppedBytes: number
}

export const make = (output: Output["Service"]): TerminalTurn => {
  const turn = Semaphore.makeUnsafe(1)
  let held: Held | undefined
  /** Whether the last line on a terminal is unfinished. */
  let isOpen = false

  const passed = <E>(isTerminal: boolean, data: string | Uint8Array, written: Effect.Effect<void, E>) =>
    Effect.suspend(() => {
      if (isTerminal && data.length > 0) isOpen = data.at(-1) !== "\n" && data.at(-1) !== 0x0a
      return written
    })

  const pass = <E>(
    isTerminal: boolean,
    data: string | Uint8Array,
    written: Effect.Effect<void, E>
  ): Effect.Effect<void, E> =>
    Effect.suspend(() => {
      const write = passed(isTerminal, data, written)
      if (held === undefined) return write
      if (held.bytes + data.length > heldBytesMax) held.droppedBytes += data.length
      else {
        held.bytes += data.length
        held.writes.push(write)
      }
      return Effect.void
    })

  /** Writes what was held. Others are still held meanwhile, so the order stays. */
  const release = (all: Held): Effect.Effect<void> =>
    Effect.gen(function* () {
      for (let write = all.writes.shift(); write !== undefined; write = all.writes.shift())
        // Its writer has gone on. If the output is closed, the writer's next text fails.
        yield* Effect.ignore(write)
      const { droppedBytes } = all
      held = undefined
      if (droppedBytes > 0)
        yield* output.stderr(`· ${droppedBytes} bytes of output are not shown, because a question waited\n`)
    })

  const { stderrIsTerminal, stdoutIsTerminal } = output
  return {
    others: {
      ...output,
      stdout: (data) => pass(stdoutIsTerminal, data, output.stdout(data)),
      stderr: (data) => pass(stderrIsTerminal, data, output.stderr(data)),
      stdoutJson: (text) => pass(stdoutIsTerminal, text, output.stdoutJson(text)),
      screen: (lines) => pass(stdoutIsTerminal, "\n", output.screen(lines)),
      // Shows what goes on: not while a person types.
      redraw: (line) => Effect.suspend(() => (held === undefined ? output.redraw(line) : Effect.void))
    },
    ask: (question) =>
      turn.withPermit(
        Effect.acquireUseRelease(
          Effect.sync(() => (held = { writes: [], bytes: 0, droppedBytes: 0 })),
          () => {
            const begun = isOpen && stderrIsTerminal ? output.stderr("\n") : output.redraw("")
            isOpen = false
            return Effect.andThen(begun, question(output))
          },
          release
        )
      )
  }
}
