/**
 * The only place where this package runs effects: each call becomes a Promise that settles after its cleanup.
 *
 * A call ends early if its signal aborts, or if the host closes. Closing waits until all calls have ended.
 */
import { Cause, type Effect, Exit, type Layer, ManagedRuntime, Queue, Scope, Stream } from "effect"
import { Closed } from "../Closed.ts"

/** A value with open resources. */
export interface Held<A> {
  readonly value: A
  /** Releases the resources. Repeated calls return the same Promise. */
  readonly close: () => Promise<void>
}

export interface HostRuntime<R> {
  /** Runs an effect. Rejects with its error, with the signal's reason, or with `Closed`. */
  readonly settle: <A, E>(effect: Effect.Effect<A, E, R>, signal: AbortSignal | undefined) => Promise<A>
  /** Iterates over a stream. A consumer that stops early ends it and waits for its cleanup. */
  readonly iterate: <A, E>(
    stream: Stream.Stream<A, E, R>,
    signal: AbortSignal | undefined
  ) => AsyncIterable<A>
  /** Runs an effect whose resources stay open until `close` is called, or the host closes. */
  readonly hold: <A, E>(
    effect: Effect.Effect<A, E, R | Scope.Scope>,
    signal: AbortSignal | undefined
  ) => Promise<Held<A>>
  /** Ends all calls and releases everything. Repeated calls return the same Promise. */
  readonly close: () => Promise<void>
}

export const make = <R, E0>(layer: Layer.Layer<R, E0>): HostRuntime<R> => {
  const runtime = ManagedRuntime.make(layer)
  const closing = new AbortController()
  const open = new Set<Promise<unknown>>()
  const held = new Set<() => Promise<void>>()

  const tracked = async <A>(work: Promise<A>): Promise<A> => {
    open.add(work)
    try {
      return await work
    } finally {
      open.delete(work)
    }
  }

  const settleOpen = async <A, E>(
    effect: Effect.Effect<A, E, R>,
    signal: AbortSignal | undefined
  ): Promise<A> => {
    const ends = signalOf(closing.signal, signal)
    ends.throwIfAborted()
    const exit = await runtime.runPromiseExit(effect, { signal: ends })
    if (Exit.isSuccess(exit)) return exit.value
    if (ends.aborted && Cause.hasInterruptsOnly(exit.cause)) throw ends.reason
    throw Cause.squash(exit.cause)
  }
  const settle: HostRuntime<R>["settle"] = (effect, signal) => tracked(settleOpen(effect, signal))

  const holdOpen = async <A, E>(
    effect: Effect.Effect<A, E, R | Scope.Scope>,
    signal: AbortSignal | undefined
  ): Promise<Held<A>> => {
    // Before anything is created: a closed runtime cannot release it, and another one would be built for it.
    signalOf(closing.signal, signal).throwIfAborted()
    const scope = Scope.makeUnsafe()
    const close = once(async () => {
      try {
        await runtime.runPromise(Scope.close(scope, Exit.void))
      } finally {
        // Not earlier: the runtime must not close while this goes on.
        held.delete(close)
      }
    })
    try {
      const value = await settleOpen(Scope.provide(effect, scope), signal)
      held.add(close)
      return { value, close }
    } catch (error) {
      // A release that fails as well would hide why.
      await close().catch(() => undefined)
      throw error
    }
  }

  const hold: HostRuntime<R>["hold"] = (effect, signal) => tracked(holdOpen(effect, signal))

  /** A stream runs in a fiber of its own, so that closing the host ends it even if its consumer has stopped reading. */
  const iterate = async function* <A, E>(
    stream: Stream.Stream<A, E, R>,
    signal: AbortSignal | undefined
  ): AsyncGenerator<A> {
    const ends = signalOf(closing.signal, signal)
    const marked = Stream.concat(
      Stream.map(stream, (value) => ({ value })),
      Stream.succeed(undefined)
    )
    const { close, value: queue } = await hold(Stream.toQueue(marked, { capacity: 16 }), signal)
    const abort = () => void close()
    ends.addEventListener("abort", abort, { once: true })
    try {
      for (let next = await settle(Queue.take(queue), ends); next !== undefined;) {
        yield next.value
        next = await settle(Queue.take(queue), ends)
      }
    } finally {
      ends.removeEventListener("abort", abort)
      await close()
    }
  }

  return {
    settle,
    iterate,
    hold,
    close: once(async () => {
      closing.abort(new Closed({ what: "host" }))
      await Promise.allSettled(open)
      const releases = await Promise.allSettled([...held].map((close) => close()))
      await runtime.dispose()
      for (const release of releases) if (release.status === "rejected") throw release.reason
    })
  }
}

/** Combines a signal with one that a caller may have given. */
export const signalOf = (closing: AbortSignal, given: AbortSignal | undefined): AbortSignal =>
  given === undefined ? closing : AbortSignal.any([closing, given])

/** Makes a function that does its work once, however often it is called. */
export const once = <A>(make: () => Promise<A>): (() => Promise<A>) => {
  let made: Promise<A> | undefined
  return () => (made ??= make())
}
