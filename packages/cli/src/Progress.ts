/**
 * Progress on standard error: a spinner on a terminal, lines elsewhere, nothing with `--quiet`.
 *
 * Elsewhere, such as in CI, a long activity is repeated every 30 seconds, so that its log shows that it goes on.
 *
 * A spinner's frame is always erased before anything else is written, so it never mixes with an answer.
 */
import { Clock, Effect, Fiber, type Scope } from "effect"
import { Output } from "./Output.ts"
import { formatMillis } from "./Quantity.ts"
import { oneLine } from "./TerminalText.ts"

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
const frameMillis = 80

/** Time between two lines about the same activity. */
const lineSeconds = 30

export interface Progress {
  /** Names the current activity. A terminal shows it at once, a log every 30 seconds. */
  readonly now: (text: string) => Effect.Effect<void>
  /** Prints a line that stays. */
  readonly note: (text: string) => Effect.Effect<void>
  /** Stops showing the activity for good, because other output follows. */
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
  const state = { text: "", drawn: false, resting: false, frame: 0 }
  const sinceMillis = yield* Clock.currentTimeMillis
  const elapsed = Effect.map(Clock.currentTimeMillis, (millis) => millis - sinceMillis)
  const now = (text: string) =>
    Effect.sync(() => {
      state.text = oneLine(text)
    })
  if (!output.stderrIsTerminal) {
    const repeat = Effect.flatMap(elapsed, (millis) =>
      state.text === "" ? Effect.void : output.stderr(line(`${state.text} (${formatMillis(millis)})`))
    )
    const fiber = yield* Effect.sleep(`${lineSeconds} seconds`).pipe(
      Effect.andThen(repeat),
      Effect.forever,
      Effect.forkScoped
    )
    return { now, note: (text) => output.stderr(line(text)), rest: Fiber.interrupt(fiber) }
  }

  const draw = Effect.gen(function* () {
    if (state.resting || state.text === "") return
    const millis = yield* elapsed
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
    now,
    note: (text) => Effect.andThen(clear, output.stderr(line(text))),
    rest
  }
})
