/** Turns host operations that throw into effects that fail with the caller's error. */
import * as Effect from "effect/Effect"

/** Returns the message of a thrown value, or the value as text. */
export const messageOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown)

/** Runs an operation. `failure` makes the caller's error from the message and the thrown value. */
export const attempt = <A, E>(
  run: (signal: AbortSignal) => PromiseLike<A>,
  failure: (message: string, thrown: unknown) => E
): Effect.Effect<A, E> =>
  Effect.tryPromise({ try: run, catch: (thrown) => failure(messageOf(thrown), thrown) })

/**
 * Like {@link attempt}, for an operation of several steps that must not stop halfway. An interruption waits for its
 * end: Node continues the operation anyway, and would stop it only when the process exits.
 */
export const attemptWhole = <A, E>(
  run: () => PromiseLike<A>,
  failure: (message: string, thrown: unknown) => E
): Effect.Effect<A, E> => Effect.uninterruptible(attempt(run, failure))

/**
 * Like {@link attemptWhole}, for an operation that takes long and looks at its signal between its steps. An
 * interruption aborts the signal, and waits for the end of the step that has begun.
 */
export const attemptSteps = <A, E>(
  run: (signal: AbortSignal) => PromiseLike<A>,
  failure: (message: string, thrown: unknown) => E
): Effect.Effect<A, E> =>
  Effect.callback<A, E>((resume, signal) => {
    const ended = new Promise<A>((resolve) => resolve(run(signal))).then(
      (value) => resume(Effect.succeed(value)),
      (thrown: unknown) => resume(Effect.fail(failure(messageOf(thrown), thrown)))
    )
    return Effect.promise(() => ended)
  })
