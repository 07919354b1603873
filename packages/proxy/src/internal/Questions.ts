/** Questions to another thread, matched to their answers by a serial number. */
import * as Effect from "effect/Effect"

export interface Questions<Answer> {
  /** Sends a question with the given serial number. Succeeds with its answer. */
  readonly ask: (send: (serial: number) => void) => Effect.Effect<Answer>
  /** Delivers an answer, if its question still waits for one. */
  readonly answered: (serial: number, answer: Answer) => void
}

export const make = <Answer>(): Questions<Answer> => {
  const open = new Map<number, (answer: Answer) => void>()
  let last = 0
  return {
    ask: (send) =>
      Effect.callback((resume) => {
        const serial = ++last
        open.set(serial, (answer) => resume(Effect.succeed(answer)))
        send(serial)
        return Effect.sync(() => open.delete(serial))
      }),
    answered: (serial, answer) => {
      open.get(serial)?.(answer)
      open.delete(serial)
    }
  }
}
