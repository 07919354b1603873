/** Work of the host that throws, as an effect that fails with an error of the caller's own. */
import * as Effect from "effect/Effect"

/** The message of something that was thrown, or the thing itself as text. */
export const messageOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown)

/** Runs it; `failure` makes the caller's error of the message of what was thrown, and of that itself. */
export const attempt = <A, E>(
  run: (signal: AbortSignal) => PromiseLike<A>,
  failure: (message: string, thrown: unknown) => E
): Effect.Effect<A, E> =>
  Effect.tryPromise({ try: run, catch: (thrown) => failure(messageOf(thrown), thrown) })
