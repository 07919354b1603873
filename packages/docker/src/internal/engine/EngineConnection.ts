/** Calls to an engine: each has a timeout, and each failure is a typed error. */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { Effect, type Scope } from "effect"
import { classify, faultOf, isNotFound } from "./EngineFault.ts"
import * as EngineHttp from "./EngineHttp.ts"
import { type DockerAddress, format } from "../../DockerSocket.ts"

/** Default timeout of a call in seconds. */
export const callSecondsMax = 30

interface About {
  /** Timeout in seconds, by default {@link callSecondsMax}. `Infinity`: no timeout. */
  readonly secondsMax?: number
  readonly image?: string
}

export interface EngineConnection {
  readonly http: EngineHttp.EngineHttp
  readonly call: <A>(
    operation: string,
    run: (abortSignal: AbortSignal) => Promise<A>,
    about?: About
  ) => Effect.Effect<A, ContainerError>
  /** Makes a call about one resource. Returns `undefined` if the engine answers 404. */
  readonly find: <A>(
    operation: string,
    run: (abortSignal: AbortSignal) => Promise<A>,
    about?: About
  ) => Effect.Effect<A | undefined, ContainerError>
}

export const make = Effect.fnUntraced(function* (
  address: DockerAddress
): Effect.fn.Return<EngineConnection, never, Scope.Scope> {
  const http = yield* Effect.acquireRelease(
    Effect.sync(() => EngineHttp.make(address)),
    ({ close }) => Effect.sync(close)
  )
  const call = <A>(
    operation: string,
    run: (abortSignal: AbortSignal) => Promise<A>,
    about: About = {}
  ): Effect.Effect<A, ContainerError> =>
    Effect.callback((resume) => {
      const controller = new AbortController()
      const fail = (thrown: unknown) =>
        resume(Effect.fail(classify(operation, thrown, { ...about, address: format(address) })))
      const { secondsMax = callSecondsMax } = about
      // An answer that is cut off while it is read would report a lost connection, so this fails first.
      const expire = () => {
        fail(Object.assign(new Error("aborted"), { code: "ABORT_ERR" }))
        controller.abort()
      }
      const timer = secondsMax === Infinity ? undefined : setTimeout(expire, secondsMax * 1000)
      new Promise<A>((resolve) => resolve(run(controller.signal)))
        .then((value) => resume(Effect.succeed(value)), fail)
        .finally(() => clearTimeout(timer))
      return Effect.sync(() => {
        clearTimeout(timer)
        controller.abort()
      })
    })
  return {
    http,
    call,
    find: (operation, run, about) =>
      call(operation, (abortSignal) => run(abortSignal).catch(undefinedIfAbsent), about)
  }
})

const undefinedIfAbsent = (thrown: unknown): undefined => {
  if (!isNotFound(faultOf(thrown))) throw thrown
}
