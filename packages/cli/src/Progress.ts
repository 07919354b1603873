/**
 * Progress on standard error: a spinner on a terminal, lines elsewhere, nothing with `--quiet`.
 *
 * A spinner's frame is always erased before anything else is written, so it never mixes with an answer.
 */
import { Clock, Effect, Fiber, type Scope } from "effect"
import { Output } from "./Output.ts"
import { formatMillis } from "./Quantity.ts"
import { oneLine } from "./TerminalText.ts"

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
const frameMillis = 80

export interface Progress {
  /** Shows the current activity, on a terminal only. */
  readonly now: (text: string) => Effect.Effect<void>
  /** Prints a line that stays. */
  readonly note: (text: string) => Effect.Effect<void>
  /** Stops the spinner for good, because other output follows. */
  readonly rest: Effect.Effect<void>
}

/** Starts progress, and prints `note` first. */
export const make = Effect.fnUntraced(function* (
  options: { readonly quiet: boolean },
  note?: string
): Effect.fn.Return<Progress, never, Output | Scope.Scope> {
  const output = yield* Output
  if (options.quiet) return { now: () => Effect.void, note: () => Effect.void, rest: Effect.void }
  const line = (text: string) => `· ${oneLine(text)}\n`
  if (note !== undefined) yield* output.stderr(line(note))
  if (!output.stderrIsTerminal) {
    return { now: () => Effect.void, note: (text) => output.stderr(line(text)), rest: Effect.void }
  }

  const state = {
    text: "",
    sinceMillis: yield* Clock.currentTimeMillis,
    drawn: false,
    resting: false,
    frame: 0
  }
  const draw = Effect.gen(function* () {
    if (state.resting || state.text === "") return
    const millis = (yield* Clock.currentTimeMillis) - state.sinceMillis
    state.frame = (state.frame + 1) % frames.length
    state.drawn = true
    yield* output.redraw(
      `${frames[state.frame]} ${state.text}${millis < 1000 ? "" : ` (${formatMillis(millis)})`}`
    )
  })
  const clear = Effect.suspend(() => {
    if (!state.drawn) return Effect.void
    state.drawn = false
    return output.redraw("")
  })
  const fiber = yield* draw.pipe(Effect.andThen(Effect.sleep(frameMillis)), Effect.forever, Effect.forkScoped)
  const rest = Effect.suspend(() => {
    state.resting = true
    return Effect.andThen(Fiber.interrupt(fiber), clear)
  })
  yield* Effect.addFinalizer(() => rest)
  return {
    now: (text) =>
      Effect.sync(() => {
        state.text = oneLine(text)
      }),
    note: (text) => Effect.andThen(clear, output.stderr(line(text))),
    rest
  }
})
