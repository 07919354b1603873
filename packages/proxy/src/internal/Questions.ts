/** Questions to another thread, each with a number by which its answer is known. */
import * as Effect from "effect/Effect"

export interface Questions<Answer> {
  /** Sends a question under the number that is given. Succeeds with its answer. */
  readonly ask: (send: (serial: number) => void) => Effect.Effect<Answer>
  /** Hands an answer over, unless nobody waits for it any more. */
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
