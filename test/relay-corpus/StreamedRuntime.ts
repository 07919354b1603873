/** A `ContainerRuntime` whose containers write a stream from the test instead of running a program. */
import { type Container, type ContainerExit, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Deferred, Effect, Layer, Stream } from "effect"
import { unusedParts } from "./UnusedParts.ts"
import type { HostileStream, StreamContext } from "./Streams.ts"

/** Streams that the next container of each run writes. */
export class Sources extends Context.Service<Sources, Map<RunId, readonly [HostileStream, StreamContext]>>()(
  "test/Sources"
) {
  static readonly layer = Layer.sync(Sources, () => new Map())
}

const pieceBytes = 1 << 16

function* pieces(bytes: Uint8Array): Iterable<Uint8Array> {
  for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes)
}

/** Converts a source to a stream. Hides `return`, because a source that never ends would block it. */
const stream = (source: AsyncIterable<Uint8Array> | Uint8Array): Stream.Stream<Uint8Array> => {
  if (source instanceof Uint8Array) return Stream.fromIterable(pieces(source))
  const iterator = source[Symbol.asyncIterator]()
  return Stream.fromAsyncIterable(
    { [Symbol.asyncIterator]: () => ({ next: () => iterator.next() }) },
    (cause) => cause
  ).pipe(Stream.orDie)
}

const exitOf = (exitCode: number): ContainerExit => ({
  exitCode,
  oomKilled: false,
  processesRefused: false,
  peak: {}
})

const containerOf = Effect.fnUntraced(function* (
  { bytes, exitCode = 0, stderr = "" }: HostileStream,
  context: StreamContext
) {
  const over = yield* Deferred.make<void>()
  const said = Stream.make({ channel: "stderr" as const, bytes: new TextEncoder().encode(stderr) })
  const written = Stream.map(stream(bytes(context)), (piece) => ({
    channel: "stdout" as const,
    bytes: piece
  }))
  return {
    id: "streamed",
    start: Effect.void.pipe(Effect.as(undefined)),
    ...unusedParts,
    output: Stream.concat(said, written).pipe(Stream.ensuring(Deferred.succeed(over, undefined))),
    exit: Effect.as(Deferred.await(over), exitOf(exitCode))
  } satisfies Container
})

export const layer: Layer.Layer<ContainerRuntime, never, Sources> = Layer.effect(
  ContainerRuntime,
  Effect.map(Sources, (sources) =>
    ContainerRuntime.of({
      acquire: ({ runId }) => {
        const source = sources.get(runId)
        return source === undefined ? Effect.die(new Error(`no source for ${runId}`)) : containerOf(...source)
      },
      acquireVolume: () => Effect.die(new Error("a relay does not use this")),
      sharesHost: Effect.succeed(true),
      leftovers: () => Effect.succeed([])
    })
  )
)
