/**
 * Standard input of a command that is a stream, for implementations of `Executor`.
 *
 * The stream runs beside the command, a few pieces ahead of it. It ends with the command, and its finalizers run after
 * the command was killed, so that none can delay that. If it fails, the command is killed: it must not take a part of
 * its input for the whole.
 */
import { Cause, Deferred, Effect, Queue, Scope, Stream } from "effect"
import type { SignalName } from "./ExecutorValues.ts"
import type { Command } from "./ExecutorCommand.ts"
import { emptyOutput } from "./RunResult.ts"
import { CommandInputFailed } from "./SandboxReason.ts"

/** Pieces of a stream that are taken before the command reads them. */
export const piecesAheadMax = 4

/** Length of the description of an error of the stream. */
const detailLengthMax = 200

export interface CommandInput {
  /** Input to start the command with. A stream is for one reader. It never fails: after a failure, it stays open. */
  readonly stdin: Uint8Array | Stream.Stream<Uint8Array> | undefined
  /** Begins to feed the started command, until the scope of {@link make} closes. Returns the exit that it now has. */
  readonly feed: <A, E>(command: {
    readonly exit: Effect.Effect<A, E>
    readonly signal: (name: SignalName) => Effect.Effect<void, unknown>
  }) => Effect.Effect<Effect.Effect<A, E | CommandInputFailed>>
}

/** Call it before the command is started, in the command's scope. */
export const make = (stdin: Command["stdin"]): Effect.Effect<CommandInput, never, Scope.Scope> =>
  Stream.isStream(stdin)
    ? streamed(stdin)
    : Effect.succeed({ stdin, feed: ({ exit }) => Effect.succeed(exit) })

const streamed = Effect.fnUntraced(function* (
  source: Stream.Stream<Uint8Array, unknown>
): Effect.fn.Return<CommandInput, never, Scope.Scope> {
  // Closed after the command was killed, because it is older.
  const scope = yield* Scope.fork(yield* Effect.scope)
  const queue = yield* Queue.bounded<Uint8Array, Cause.Done>(piecesAheadMax)
  const failed = yield* Deferred.make<void>()
  const over = yield* Deferred.make<void>()
  let failure: CommandInputFailed | undefined

  const pump = checked(source).pipe(
    Stream.runForEach((piece) => Queue.offer(queue, piece)),
    Effect.andThen(Queue.end(queue)),
    // All causes: a stream can also die when it is closed after its failure.
    Effect.catchCause((cause) => {
      const reason = Cause.squash(cause)
      failure = reason instanceof CommandInputFailed ? reason : failedWith(`failed (${described(reason)})`)
      return Deferred.succeed(failed, undefined)
    }),
    Effect.raceFirst(Deferred.await(over))
  )

  return {
    stdin: Stream.fromQueue(queue).pipe(Stream.ensuring(Deferred.succeed(over, undefined))),
    feed: ({ exit, signal }) =>
      Effect.gen(function* () {
        // Begun before anything can end it: a fiber that is interrupted before it starts would run no finalizer of the
        // stream, and would not end the queue.
        yield* Effect.forkIn(pump, scope, { startImmediately: true })
        yield* Effect.exit(exit).pipe(
          // The command's children must not wait for more.
          Effect.ensuring(Effect.andThen(Deferred.succeed(over, undefined), Queue.end(queue))),
          Effect.forkIn(scope, { startImmediately: true })
        )
        yield* Deferred.await(failed).pipe(
          Effect.andThen(signal("SIGKILL")),
          Effect.ignore,
          Effect.forkIn(scope)
        )
        return Effect.flatMap(exit, (ended) =>
          failure === undefined ? Effect.succeed(ended) : Effect.fail(failure)
        )
      })
  }
})

/** Fails with the reason if the stream fails, dies, or yields anything but bytes. Drops empty pieces. */
const checked = (source: Stream.Stream<unknown, unknown>): Stream.Stream<Uint8Array, CommandInputFailed> =>
  source.pipe(
    Stream.catchCause((cause) => Stream.fail(failedWith(`failed (${described(Cause.squash(cause))})`))),
    Stream.mapEffect((piece) =>
      piece instanceof Uint8Array
        ? Effect.succeed(piece)
        : Effect.fail(failedWith(`yielded a value of type ${typeof piece}, not a Uint8Array`))
    ),
    Stream.filter(({ byteLength }) => byteLength > 0)
  )

const described = (thrown: unknown): string =>
  (thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown)).slice(0, detailLengthMax)

const failedWith = (detail: string) =>
  new CommandInputFailed({
    detail,
    remedy: "Let the stream of bytes end without an error, or give the whole input as bytes",
    partial: { output: emptyOutput, peak: {} }
  })
