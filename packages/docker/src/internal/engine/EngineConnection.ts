/**
 * Connections to an engine: they are kept open, each call has a timeout, and each failure is a typed error.
 *
 * All workarounds for dockerode are in this module.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import Docker from "dockerode"
import { Effect, type Scope } from "effect"
import { Agent } from "node:http"
import type { Readable } from "node:stream"
import { inspect } from "node:util"
import { classify, faultOf, isNotFound } from "./EngineFault.ts"
import { type DockerAddress, format } from "../../DockerSocket.ts"

/** Default timeout of a call in seconds. */
export const callSecondsMax = 30

interface About {
  /** Timeout in seconds, by default {@link callSecondsMax}. `Infinity`: no timeout. */
  readonly secondsMax?: number
  readonly image?: string
}

export interface EngineConnection {
  readonly docker: Docker
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
  // Connections are kept alive: a run makes eight calls, and a new connection costs as much as the shortest of them.
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new QuietAgent({ keepAlive: true, maxSockets: Infinity })),
    (made) => Effect.sync(() => made.destroy())
  )
  // dockerode accepts an agent, but its types omit it.
  const options: Docker.DockerOptions & { readonly agent: Agent } = {
    ...(address.type === "unix" ? { socketPath: address.path } : { host: address.host, port: address.port }),
    agent
  }
  const call: EngineConnection["call"] = (operation, run, about = {}) =>
    Effect.tryPromise({
      try: (own) => {
        if (about.secondsMax === Infinity) return run(own)
        const timeout = AbortSignal.timeout((about.secondsMax ?? callSecondsMax) * 1000)
        const signal = AbortSignal.any([own, timeout])
        return orAborted(run(signal), signal)
      },
      catch: (thrown) => classify(operation, thrown, { ...about, address: format(address) })
    })
  return {
    docker: new Docker(options),
    call,
    find: (operation, run, about) =>
      call(operation, (abortSignal) => run(abortSignal).catch(undefinedIfAbsent), about)
  }
})

const undefinedIfAbsent = (thrown: unknown): undefined => {
  if (!isNotFound(faultOf(thrown))) throw thrown
}

/**
 * Sends a POST whose response starts long before it ends. dockerode's own call never settles if the engine dies in
 * between. A response that is read as a stream fails instead.
 */
export const answering = (
  docker: Docker,
  call: { readonly path: string; readonly options: object; readonly abortSignal: AbortSignal }
): Promise<Readable> =>
  new Promise((resolve, reject) => {
    docker.modem.dial(
      {
        ...call,
        method: "POST",
        isStream: true,
        statusCodes: { 200: true, 404: "no such container", 500: "server error" }
      },
      // With isStream, the answer is the HTTP response.
      (thrown, answer) => (thrown === null ? resolve(answer as Readable) : reject(thrown))
    )
  })

/** Rejects when the signal aborts, because not every call of dockerode supports a signal. */
const orAborted = <A>(pending: Promise<A>, signal: AbortSignal): Promise<A> =>
  new Promise((resolve, reject) => {
    const abort = () => reject(Object.assign(new Error("aborted"), { code: "ABORT_ERR" }))
    if (signal.aborted) abort()
    signal.addEventListener("abort", abort, { once: true })
    pending.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })

/** Waits for a stream until the signal aborts. A stream that arrives later is closed, so that it does not leak. */
export const abandonable = async <S extends { destroy: () => unknown }>(
  pending: Promise<unknown>,
  signal: AbortSignal
): Promise<S> => {
  const stream = pending as Promise<S>
  try {
    return await orAborted(stream, signal)
  } catch (thrown) {
    stream.then(
      (late) => late.destroy(),
      () => undefined
    )
    throw thrown
  }
}

/**
 * An HTTP agent with a short debug representation. dockerode's client formats the options of every call for a debug
 * log, even if that is off. The agent holds all connections, so with 16 concurrent runs this took more CPU time than
 * the runs.
 */
class QuietAgent extends Agent {
  [inspect.custom]() {
    return "Agent"
  }
}
