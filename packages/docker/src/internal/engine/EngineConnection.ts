/**
 * The connection to an engine: kept open, each call bounded in time, each failure with a reason.
 *
 * What dockerode does not do by itself is here, and only here.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import Docker from "dockerode"
import { Effect, type Scope } from "effect"
import { Agent } from "node:http"
import type { Readable } from "node:stream"
import { inspect } from "node:util"
import { classify, faultOf, isNotFound } from "./EngineFault.ts"
import { type DockerAddress, format } from "../../DockerSocket.ts"

/** How long an ordinary call may take. */
export const callSecondsMax = 30

interface About {
  /** `Infinity` leaves the clock to the caller. */
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
  /** A call about one thing; `undefined` where the engine does not have it. */
  readonly find: <A>(
    operation: string,
    run: (abortSignal: AbortSignal) => Promise<A>,
    about?: About
  ) => Effect.Effect<A | undefined, ContainerError>
}

export const make = Effect.fnUntraced(function* (
  address: DockerAddress
): Effect.fn.Return<EngineConnection, never, Scope.Scope> {
  // Connections are kept: a run makes eight calls, and each connection costs as much as the shortest of them.
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new QuietAgent({ keepAlive: true, maxSockets: Infinity })),
    (made) => Effect.sync(() => made.destroy())
  )
  // dockerode takes an agent; its types do not say so.
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
 * A POST whose answer begins long before it ends. dockerode itself never settles when the engine dies in between;
 * read as a stream, such an answer fails.
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
      // With isStream the answer is its response.
      (thrown, answer) => (thrown === null ? resolve(answer as Readable) : reject(thrown))
    )
  })

/** Not every call of dockerode listens to a signal; every one of ours is over when it says so. */
const orAborted = <A>(pending: Promise<A>, signal: AbortSignal): Promise<A> =>
  new Promise((resolve, reject) => {
    const abort = () => reject(Object.assign(new Error("aborted"), { code: "ABORT_ERR" }))
    if (signal.aborted) abort()
    signal.addEventListener("abort", abort, { once: true })
    pending.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })

/** A stream that comes after nobody waits for it any more is closed, not leaked. */
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
 * dockerode's client formats the options of every call for a debug log, read or not. An agent holds every connection
 * there is, so with sixteen runs at once that took more processor time than the runs.
 */
class QuietAgent extends Agent {
  [inspect.custom]() {
    return "Agent"
  }
}
