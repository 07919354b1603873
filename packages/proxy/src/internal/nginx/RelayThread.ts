/**
 * Connects an nginx for many runs to an upstream that the host reaches, in a thread of its own.
 *
 * Each run has its own relay socket, so its limits do not depend on other runs, and closing it cuts all calls of this
 * run and of no other. The main thread carries no byte of a call.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { Deferred, Effect, type Scope } from "effect"
import type { User } from "@cogni/sandbox-core/Posture"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import { systemAuthorities } from "../gateway/UpstreamClient.ts"
import * as ThreadCode from "../ThreadCode.ts"
import type { Address } from "../../Upstream.ts"
import type { RelayLimits } from "./RelaySocket.ts"

export interface RelayThreadOptions extends RelayLimits {
  readonly address: Address
  /** User of the proxy container. Only this user may connect. */
  readonly owner: User
  /** PEM certificates to trust instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** Data that the thread gets at its start. */
export interface RelayStart extends Omit<RelayThreadOptions, "certificateAuthorities"> {
  readonly authorities: ReadonlyArray<string>
}

export interface RelayAsk {
  readonly number: number
  readonly name: "open" | "counts" | "close"
  readonly socketPath: string
  /** With `open`: shared memory for the number of connections. */
  readonly count?: Int32Array | undefined
}

/** Counts of a relay so far. */
export interface RelayCounts {
  /** Number of connections, including refused ones. */
  readonly accepted: number
  /** Why the last failed connection failed. */
  readonly lastFailure?: string | undefined
}

export interface RelayAnswer extends RelayCounts {
  readonly number: number
  readonly problem?: string | undefined
}

/** The relay of one run. */
export interface RunRelay {
  readonly counts: Effect.Effect<RelayCounts>
}

export interface RelayThread {
  /** Opens a relay at a path. Closing the scope closes it and its connections. */
  readonly acquire: (socketPath: string) => Effect.Effect<RunRelay, ProxyFailed, Scope.Scope>
  /** Never succeeds. Fails when the thread has ended. */
  readonly failure: Effect.Effect<never, ProxyFailed>
}

/** A relay buffers little: `pipe` waits for the slower side. */
const heapMiBMax = 256

const failed = (problem: string): ProxyFailed =>
  new ProxyFailed({
    detail: `the thread between nginx and the upstream ${problem}`,
    remedy: "Check this host's free memory and its limit of threads, and run again"
  })

const reasonOf = (error: unknown): ProxyFailed =>
  ThreadCode.isMissing(error)
    ? new ProxyFailed({
        detail: "the program of the thread between nginx and the upstream does not exist",
        remedy: ThreadCode.missingRemedy
      })
    : failed(`failed: ${messageOf(error)}`)

/** Starts the thread. Closing the scope ends it. */
export const make = Effect.fnUntraced(function* ({
  certificateAuthorities,
  ...options
}: RelayThreadOptions): Effect.fn.Return<RelayThread, ProxyFailed, Scope.Scope> {
  const { relay } = yield* Effect.promise(ThreadCode.load)
  const lost = yield* Deferred.make<never, ProxyFailed>()
  const asked = new Map<number, (answer: RelayAnswer) => void>()
  let asks = 0

  const begin = () => {
    const worker = ThreadCode.start(relay, {
      name: "cogni-nginx-relay",
      workerData: {
        ...options,
        authorities: options.address.secure ? (certificateAuthorities ?? systemAuthorities()) : []
      } satisfies RelayStart,
      env: {},
      argv: [],
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: heapMiBMax, maxYoungGenerationSizeMb: 4, stackSizeMb: 2 }
    })
    worker.stdout.resume()
    worker.stderr.resume()
    worker.unref()
    worker.on("message", (answer: RelayAnswer) => {
      asked.get(answer.number)?.(answer)
      asked.delete(answer.number)
    })
    worker.on("error", (error) => Deferred.doneUnsafe(lost, Effect.fail(reasonOf(error))))
    worker.on("exit", (code) => Deferred.doneUnsafe(lost, Effect.fail(failed(`ended with code ${code}`))))
    return worker
  }
  const worker = yield* Effect.acquireRelease(Effect.try({ try: begin, catch: reasonOf }), (started) =>
    Effect.promise(() => started.terminate())
  )

  const ask = (name: RelayAsk["name"], socketPath: string, count?: Int32Array) =>
    Effect.callback<RelayAnswer>((resume) => {
      const number = (asks += 1)
      asked.set(number, (answer) => resume(Effect.succeed(answer)))
      worker.postMessage({ number, name, socketPath, count } satisfies RelayAsk, [])
      return Effect.sync(() => asked.delete(number))
    }).pipe(Effect.raceFirst(Deferred.await(lost)))

  return {
    acquire: Effect.fnUntraced(function* (socketPath) {
      const count = new Int32Array(new SharedArrayBuffer(4))
      yield* Effect.acquireRelease(ask("open", socketPath, count), () =>
        // A thread that has ended has closed its sockets.
        Effect.ignore(ask("close", socketPath))
      ).pipe(
        Effect.filterOrFail(
          ({ problem }) => problem === undefined,
          ({ problem }) => failed(`cannot listen on ${socketPath}: ${problem}`)
        )
      )
      const countsOfLost = Effect.sync(() => ({ accepted: Atomics.load(count, 0) }))
      return { counts: ask("counts", socketPath).pipe(Effect.catch(() => countsOfLost)) }
    }),
    failure: Deferred.await(lost)
  }
})
