/**
 * Faults of a port, as plain data: written by hand or generated, and printed if a property fails.
 *
 * `of` makes the constructors and the layer of each of the four fault modules.
 */
import { Duration, Effect, type Layer, type Scope } from "effect"
import * as Interceptor from "./Interceptor.ts"

/** Before the port is called, or after it has answered: the engine has executed the call, but its result is lost. */
export type Moment = "before" | "after"

export type Fault<O extends Interceptor.Operation = Interceptor.Operation> =
  | {
      readonly _tag: "FailNth"
      readonly operation: O
      readonly nth: number
      readonly error: Interceptor.Operations[O]
      readonly moment: Moment
    }
  | { readonly _tag: "Hang"; readonly operation: O; readonly nth: number; readonly moment: Moment }
  | { readonly _tag: "Slow"; readonly operation: O; readonly millis: number }
  | { readonly _tag: "DieOnRelease"; readonly operation: O }

/** The operations that release a resource, by their names. */
export type ReleaseOf<O extends Interceptor.Operation> = Extract<O, `${string}.release${string}`>

const enact = (faults: ReadonlyArray<Fault>, call: number, moment: Moment): Effect.Effect<void, unknown> =>
  Effect.forEach(
    faults,
    (fault): Effect.Effect<void, unknown> => {
      switch (fault._tag) {
        case "FailNth":
          return fault.nth === call && fault.moment === moment ? Effect.fail(fault.error) : Effect.void
        case "Hang":
          return fault.nth === call && fault.moment === moment ? Effect.never : Effect.void
        case "Slow":
          return moment === "before" ? Effect.sleep(Duration.millis(fault.millis)) : Effect.void
        case "DieOnRelease":
          return moment === "before" ? Effect.die(new Error(`planted: ${fault.operation} died`)) : Effect.void
      }
    },
    { discard: true }
  )

/** Makes an interceptor for faults. It counts calls from 1, per operation, over the lifetime of the layer. */
export const interceptor = (faults: ReadonlyArray<Fault>): Effect.Effect<Interceptor.Interceptor> =>
  Effect.sync(() => {
    const calls = new Map<Interceptor.Operation, number>()
    const call: Interceptor.Interceptor["call"] = <A, E, R>(
      operation: Interceptor.Operation,
      effect: Effect.Effect<A, E, R>
    ) => {
      const own = faults.filter((fault) => fault.operation === operation)
      if (own.length === 0) return effect
      return Effect.suspend(() => {
        const nth = (calls.get(operation) ?? 0) + 1
        calls.set(operation, nth)
        // `Fault` allows only the errors of its operation, so the cast is safe.
        const at = (moment: Moment) => enact(own, nth, moment) as Effect.Effect<void, E>
        return at("before").pipe(
          Effect.andThen(effect),
          Effect.tap(() => at("after"))
        )
      })
    }
    return {
      call,
      // This finalizer runs before the resource's own, so a release that dies must not keep the resource alive.
      hold: (resource, acquire) =>
        Effect.tap(call(resource.acquire, acquire), () =>
          Effect.addFinalizer(() => call(resource.release, Effect.void))
        )
    }
  })

/** Makes the fault constructors of one port. */
export const of = <O extends Interceptor.Operation>() => ({
  /** The nth call fails, once. */
  failNth: <P extends O>(
    operation: P,
    nth: number,
    error: Interceptor.Operations[P],
    moment: Moment = "before"
  ): Fault<P> => ({ _tag: "FailNth", operation, nth, error, moment }),
  /** The nth call never returns. */
  hang: (operation: O, nth: number, moment: Moment = "before"): Fault<O> => ({
    _tag: "Hang",
    operation,
    nth,
    moment
  }),
  /** Every call is delayed by this duration. */
  slow: (operation: O, duration: Duration.Input): Fault<O> => ({
    _tag: "Slow",
    operation,
    millis: Duration.toMillis(Duration.fromInputUnsafe(duration))
  }),
  /** Every release of this kind dies. */
  dieOnRelease: (operation: ReleaseOf<O>): Fault<ReleaseOf<O>> => ({ _tag: "DieOnRelease", operation }),
  /** Returns `base` with these faults. */
  layer: <A, E, R>(
    base: Layer.Layer<A, E, R>,
    faults: ReadonlyArray<Fault<O>>
  ): Layer.Layer<A, E, Exclude<R, Scope.Scope>> =>
    Interceptor.layer(base, interceptor(faults as ReadonlyArray<Fault>))
})

export const ContainerRuntimeFaults = of<keyof Interceptor.ContainerRuntimeOperations>()

export const LlmProxyFaults = of<keyof Interceptor.LlmProxyOperations>()

export const RunStoreFaults = of<keyof Interceptor.RunStoreOperations>()

export const WorkspaceFaults = of<keyof Interceptor.WorkspaceOperations>()
