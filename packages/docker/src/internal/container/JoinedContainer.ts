/**
 * A container that starts in a cheaper way, which may not work: it joins a network namespace that is ready, or has one
 * that the engine does not configure.
 *
 * Until its agent starts, nothing of the run has happened in it. If the way cannot be used, the container is removed,
 * and the run gets another one. Any other failure is the run's.
 */
import type { Container, ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import type { PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Stream } from "effect"

type Created = Effect.Effect<Container, ContainerError>

export const make = Effect.fnUntraced(function* (attempts: {
  /** Its way, as a message names it. */
  readonly way: string
  readonly joined: Created
  /** Whether a failure is one of the way. */
  readonly isOfWay: (error: ContainerError | PostureMismatch) => boolean
  readonly noteFailure: (error: ContainerError | PostureMismatch) => Effect.Effect<void>
  /** Removes the container, and the namespace that it has joined. */
  readonly leave: Effect.Effect<void>
  readonly unjoined: Created
  readonly startEnded: Effect.Effect<void>
}) {
  let hasLeft = false
  const otherwise = <E extends ContainerError | PostureMismatch>(error: E) => {
    if (hasLeft || !attempts.isOfWay(error)) return Effect.fail(error)
    hasLeft = true
    return Effect.logWarning(`${attempts.way} could not be used: ${error.message}`).pipe(
      Effect.andThen(attempts.noteFailure(error)),
      Effect.andThen(attempts.leave),
      Effect.andThen(attempts.unjoined)
    )
  }
  let current = yield* attempts.joined.pipe(Effect.catch(otherwise))
  const first = current
  return {
    get id() {
      return current.id
    },
    start: first.start.pipe(
      Effect.catch((error) =>
        Effect.flatMap(otherwise(error), (other) => {
          current = other
          return other.start
        })
      ),
      Effect.ensuring(attempts.startEnded)
    ),
    proceed: Effect.suspend(() => current.proceed),
    output: Stream.suspend(() => current.output),
    exit: Effect.suspend(() => current.exit),
    send: (bytes) => current.send(bytes),
    stop: (grace) => current.stop(grace),
    whilePaused: (effect) => current.whilePaused(effect),
    processorMicros: Effect.suspend(() => current.processorMicros ?? Effect.undefined),
    exec: (command) => current.exec(command),
    files: {
      read: (path, options) => current.files.read(path, options),
      write: (path, content) => current.files.write(path, content),
      list: (path) => current.files.list(path),
      stat: (path) => current.files.stat(path),
      remove: (path, options) => current.files.remove(path, options)
    }
  } satisfies Container
})
