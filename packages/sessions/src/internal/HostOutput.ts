/**
 * The output of a command on the host, at the pace of its reader.
 *
 * It ends with the command's own process, not with the last process that holds its pipes: what is in the pipes by then
 * is the command's and is read to the end. From then on output is read and dropped, so that children which were left
 * running neither wait for a reader nor die because there is none.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Cause, Effect, Queue, Stream } from "effect"
import type { ChildProcessHandle } from "effect/process/ChildProcessSpawner"

/** More than a pipe and the buffers of Node hold. A child that goes on writing would never let the output end. */
const lateBytesMax = 1024 * 1024

/**
 * What was written before the exit reaches the reader within a few turns of the event loop. Turns are counted rather
 * than time, so that a busy machine loses nothing.
 */
const quietTurns = 64

const turn = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

/** `stream` is for one reader; `drop` reads and drops what still comes. `exited` settles when the process has ended. */
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
