/**
 * The output of a command on the host, at the pace of its reader.
 *
 * The output ends with the command's own process, not with the last process that holds its pipes. Everything in the
 * pipes at that time belongs to the command and is read to the end. Later output is read and dropped, so that remaining
 * children do not block on a full pipe or die of SIGPIPE.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Cause, Effect, Queue, Stream } from "effect"
import type { ChildProcessHandle } from "effect/process/ChildProcessSpawner"

/**
 * Limit on output read after the command has exited: more than a pipe and Node's buffers hold. Without it, a child that
 * keeps writing would keep the output open.
 */
const lateBytesMax = 1024 * 1024

/**
 * Turns of the event loop without output, after which the output of an exited command ends. Output written before the
 * exit arrives within a few turns. Turns are counted instead of time, so that a busy machine loses nothing.
 */
const quietTurns = 64

const turn = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

/** `stream` supports one reader; `drop` discards all further output. `exited` settles when the process has ended. */
export const make = Effect.fnUntraced(function* (
  { stderr, stdout }: ChildProcessHandle,
  { exited, isLive }: { readonly isLive: Effect.Effect<boolean>; readonly exited: Effect.Effect<unknown> }
) {
  const queue = yield* Queue.bounded<OutputChunk, Cause.Done>(1)
  const drop = Queue.shutdown(queue)
  const pump = (channel: OutputChunk["channel"], bytes: typeof stdout) =>
    Stream.runForEach(bytes, (bytes) => Queue.offer(queue, { channel, bytes }))
  yield* Effect.all([pump("stdout", stdout), pump("stderr", stderr)], { concurrency: 2 }).pipe(
    Effect.ignore,
    Effect.andThen(Queue.end(queue)),
    // Outlives every scope: it ends when the last process that holds a pipe does.
    Effect.forkDetach
  )

  const quiet = Effect.andThen(exited, Effect.repeat(turn, { times: quietTurns }))
  const next = Effect.raceFirst(Queue.take(queue), Effect.andThen(quiet, Cause.done()))

  const stream = Stream.unfold(0, (lateBytes) =>
    Effect.gen(function* () {
      if (lateBytes > lateBytesMax) return yield* Cause.done()
      const isInTime = yield* isLive
      const chunk = yield* next
      return [chunk, isInTime ? 0 : lateBytes + chunk.bytes.byteLength] as const
    }).pipe(Effect.catch(() => Effect.as(drop, undefined)))
  )
  return { stream, drop }
})
