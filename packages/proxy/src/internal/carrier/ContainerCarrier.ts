/**
 * Runs' sockets in a container, for an engine that cannot mount one of the host's.
 *
 * One container per host process and engine, started with the first run, holds a set of small volumes with a socket in
 * each, and carries what comes to them over its standard streams (`SocketTunnel`). A volume is leased to one run at a
 * time. The container has no network, no key and nothing to decide: the gateway stays in this process.
 */
import { Cause, Deferred, Duration, Effect, Exit, Fiber, Latch, type Scope, Stream } from "effect"
import * as path from "node:path"
import { Duplex } from "node:stream"
import type { Container, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmProxyError, socketPath } from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as CallbackFibers from "../CallbackFibers.ts"
import { type CarriedSocket, type SocketCarrier, temporaryDirectory } from "./SocketCarrier.ts"
import * as SocketTunnel from "./SocketTunnel.ts"

export interface ContainerCarrierOptions {
  readonly image: string | undefined
  readonly runtime: ContainerRuntime["Service"]
  /** Sockets of one container, and so runs at one time. */
  readonly slotsMax?: number | undefined
  readonly containersMax?: number | undefined
}

/** A container with its sockets. */
interface Carrier {
  readonly tunnel: SocketTunnel.SocketTunnel
  readonly volumes: ReadonlyArray<string>
  readonly free: Set<number>
  readonly ended: Deferred.Deferred<never, LlmProxyError>
  /** Settles when the container is gone and no run has a slot of it any more. */
  readonly unused: Latch.Latch
  leasesTotal: number
  isGone: boolean
}

const slotsMaxDefault = 16
const containersMaxDefault = 16
const MiB = 1024 * 1024
const owner = { userId: 999, groupId: 999 }
const startSecondsMax = 60
const leaseSecondsMax = 10

/** How much later than its pipe a container may be seen to have ended. */
const cutOffSeconds = 1

/** It lives as long as the host process; the label only matters to who cannot see that process. */
const runtimeSecondsMax = 30 * 24 * 3600

const limits = {
  memoryBytesMax: 512 * MiB,
  processesMax: 64,
  cpusMax: 2,
  temporaryBytesMax: 8 * MiB,
  workspaceBytesMax: MiB,
  filesOpenMax: 16_384,
  runtimeSecondsMax
} as const

/** Nothing is started until the first run asks. */
export const make = Effect.fnUntraced(function* (
  options: ContainerCarrierOptions
): Effect.fn.Return<SocketCarrier, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const carriers = new Set<Carrier>()
  let containersTotal = 0
  let starting: Deferred.Deferred<void, LlmProxyError> | undefined

  /** One container, in a scope of its own: closed when it does not start, and when it is of no use any more. */
  const carry = (started: Deferred.Deferred<void, LlmProxyError>) =>
    Effect.gen(function* () {
      const carrier = yield* Effect.onExit(start(options), (exit) => {
        starting = undefined
        if (Exit.isSuccess(exit)) carriers.add(exit.value)
        return Deferred.done(started, Exit.asVoid(exit))
      })
      yield* carrier.unused.await
      carriers.delete(carrier)
    }).pipe(
      Effect.scoped,
      Effect.ensuring(Effect.sync(() => containersTotal--)),
      Effect.catchCause((cause) =>
        Cause.hasDies(cause)
          ? Effect.logWarning("something of a container of sockets may be left over", cause)
          : Effect.void
      )
    )

  const begin = Effect.gen(function* () {
    if (containersTotal >= (options.containersMax ?? containersMaxDefault))
      return yield* new ProxyFailed({
        detail: `all ${containersTotal} containers of sockets are in use`,
        remedy: "Wait for a run to end, or run fewer at one time"
      })
    const started = Deferred.makeUnsafe<void, LlmProxyError>()
    starting = started
    containersTotal++
    const fiber = yield* Effect.forkIn(carry(started), scope)
    // Where the gateway has closed, it has not even begun.
    fiber.addObserver(() => Deferred.doneUnsafe(started, Effect.interrupt))
    return started
  })

  const take = () => {
    const carrier = [...carriers].find(({ free, isGone }) => !isGone && free.size > 0)
    if (carrier === undefined) return undefined
    const slot = carrier.free.values().next().value!
    carrier.free.delete(slot)
    carrier.leasesTotal++
    return { carrier, slot }
  }

  /** All runs that find no slot wait for the same container. Only the wait can be interrupted. */
  const lease = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      let taken = take()
      while (taken === undefined) {
        yield* restore(Deferred.await(starting ?? (yield* begin)))
        taken = take()
      }
      const { carrier, slot } = taken
      yield* Effect.addFinalizer(() =>
        Effect.tryPromise(() => carrier.tunnel.close(slot)).pipe(
          Effect.timeout(Duration.seconds(leaseSecondsMax)),
          // A slot that was not given back for certain is nobody's again.
          Effect.andThen(Effect.sync(() => carrier.free.add(slot))),
          Effect.ignore,
          Effect.ensuring(
            Effect.suspend(() => {
              carrier.leasesTotal--
              return letGo(carrier)
            })
          )
        )
      )
      return taken
    })
  )

  return {
    name: "container",
    acquire: Effect.fnUntraced(function* () {
      const directory = yield* temporaryDirectory
      const { carrier, slot } = yield* lease
      const opened = Effect.tryPromise({
        try: () => carrier.tunnel.open(slot, path.join(directory, path.basename(socketPath))),
        catch: (cause) => failed(`its socket cannot be made: ${String(cause)}`)
      })
      return {
        mounts: [
          { type: "volume", source: carrier.volumes[slot]!, target: path.dirname(socketPath), readOnly: true }
        ],
        directory,
        open: Effect.raceFirst(opened, Deferred.await(carrier.ended)).pipe(
          Effect.timeoutOrElse({
            duration: Duration.seconds(leaseSecondsMax),
            orElse: () => Effect.fail(failed(`did not make a socket within ${leaseSecondsMax} s`))
          })
        ),
        failure: Deferred.await(carrier.ended)
      } satisfies CarriedSocket
    })
  }
})

/** A volume cannot be removed while a sandbox has it. */
const letGo = (carrier: Carrier) =>
  carrier.isGone && carrier.leasesTotal === 0 ? carrier.unused.open : Effect.void

const failed = (detail: string) =>
  new ProxyFailed({
    detail: `the container of the sockets ${detail}`,
    remedy: "Look at the engine, and at the gateway image (./dev images, cogni-sandbox doctor)"
  })

/** A container and its volumes, until the scope is closed. */
const start = Effect.fnUntraced(function* ({
  image,
  runtime,
  slotsMax = slotsMaxDefault
}: ContainerCarrierOptions): Effect.fn.Return<Carrier, LlmProxyError, Scope.Scope> {
  if (image === undefined) {
    return yield* new ProxyFailed({
      detail: "this engine does not share the host's files, and no gateway image is named",
      remedy: "Name one: image, or COGNI_GATEWAY_IMAGE; ./dev images builds it"
    })
  }
  const runId = yield* RunId.generate
  const volumes = yield* Effect.forEach(
    Array.from({ length: slotsMax }, (_, index) => index),
    (index) =>
      runtime.acquireVolume({
        runId,
        role: "socket",
        owner,
        bytesMax: 64 * 1024,
        filesMax: 8,
        runtimeSecondsMax,
        index
      }),
    { concurrency: 8 }
  )
  const container = yield* runtime.acquire({
    runId,
    role: "gateway",
    image,
    argv: [],
    env: {},
    user: owner,
    mounts: volumes.map((source, slot) => ({
      type: "volume",
      source,
      target: `/sockets/${slot}`,
      readOnly: false
    })),
    network: { mode: "none" },
    limits
  })
  yield* container.start.pipe(
    Effect.catchTag("PostureMismatch", ({ message }) => Effect.fail(failed(message)))
  )
  const ended = yield* Deferred.make<never, LlmProxyError>()
  const { errors, pipe } = yield* pipeOf(container)
  const tunnel = yield* Effect.acquireRelease(
    Effect.sync(() => SocketTunnel.make(pipe)),
    (made) => Effect.sync(() => made.destroy())
  )
  const carrier: Carrier = {
    tunnel,
    volumes,
    free: new Set(volumes.keys()),
    ended,
    unused: Latch.makeUnsafe(),
    leasesTotal: 0,
    isGone: false
  }
  yield* goneOf(container, tunnel, errors).pipe(
    Effect.onExit((exit) => {
      carrier.isGone = true
      return Effect.andThen(Deferred.done(ended, exit), letGo(carrier))
    }),
    Effect.ignore,
    Effect.forkScoped
  )
  yield* Effect.tryPromise({
    try: () => tunnel.ready,
    catch: (cause) => failed(`did not begin: ${String(cause)}${errors()}`)
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(startSecondsMax),
      orElse: () => Effect.fail(failed(`did not begin within ${startSecondsMax} s${errors()}`))
    })
  )
  return carrier
})

/** Fails when nothing goes through the container any more, with the reason. */
const goneOf = (container: Container, tunnel: SocketTunnel.SocketTunnel, errors: () => string) => {
  const exited = Effect.matchEffect(container.exit, {
    onSuccess: ({ exitCode }) => Effect.fail(failed(`ended with exit code ${exitCode}${errors()}`)),
    onFailure: (error) =>
      Effect.fail(error._tag === "ContainerFailed" ? failed(`ended under way: ${error.detail}`) : error)
  })
  // A container whose pipe has broken serves nobody, however long it lives. Its end says more, and comes soon after.
  const cutOff = Effect.promise(() => tunnel.ended).pipe(
    Effect.andThen(Effect.sleep(Duration.seconds(cutOffSeconds))),
    Effect.andThen(Effect.suspend(() => Effect.fail(failed(`cannot be reached any more${errors()}`))))
  )
  return Effect.raceFirst(exited, cutOff)
}

/**
 * Bytes on their way to the container before HTTP/2 has to wait for them. It reads nothing while one of its writes
 * waits, on either side: were the two pipes full, each side would wait for the other to read.
 */
const queuedBytesMax = 64 * MiB

/** The container's standard streams as one, in the shape that Node's HTTP/2 speaks over. */
const pipeOf = Effect.fnUntraced(function* (container: Container) {
  const sends = yield* CallbackFibers.make
  let errors = ""
  let wanted: (() => void) | undefined
  let wantsMore = true
  let pieces: Array<Uint8Array> = []
  let queuedBytes = 0
  let isSending = false
  let whenRoom: (() => void) | undefined
  /** One piece at a time, so that they keep their order; all that has come meanwhile goes together. */
  const sendNext = () => {
    const piece = Buffer.concat(pieces)
    pieces = []
    isSending = piece.byteLength > 0
    if (!isSending) return
    const sent = () => {
      queuedBytes -= piece.byteLength
      sendNext()
      const go = whenRoom
      whenRoom = undefined
      go?.()
    }
    sends.fork(container.send(piece).pipe(Effect.ignoreCause, Effect.andThen(Effect.sync(sent))))
  }
  const pipe = new Duplex({
    read: () => {
      wantsMore = true
      // The fiber goes on within this call, and may be waiting again when it returns.
      const go = wanted
      wanted = undefined
      go?.()
    },
    // HTTP/2 writes its frames one after the other, corked: together they are one write, and wake the engine once.
    writev: (written: ReadonlyArray<{ readonly chunk: Uint8Array }>, done) => {
      for (const { chunk } of written) {
        pieces.push(chunk)
        queuedBytes += chunk.byteLength
      }
      if (!isSending) sendNext()
      if (queuedBytes < queuedBytesMax) done()
      else whenRoom = done
    },
    final: (done) => done()
  })
  pipe.on("error", () => undefined)
  /** Settles when the reader wants more. */
  const demand = Effect.callback<void>((resume) => {
    // It may have asked before this is heard: the fiber can be put off between the two.
    if (wantsMore) resume(Effect.void)
    else wanted = () => resume(Effect.void)
  })
  const reading = yield* Stream.runForEach(container.output, ({ bytes, channel }) => {
    if (channel === "stderr") {
      errors = (errors + Buffer.from(bytes).toString("utf8")).slice(-500)
      return Effect.void
    }
    wantsMore = false
    return pipe.push(bytes) ? Effect.void : demand
  }).pipe(Effect.ensuring(Effect.sync(() => pipe.push(null))), Effect.ignore, Effect.forkScoped)
  yield* Effect.addFinalizer(() => Fiber.interrupt(reading))
  return { pipe, errors: () => (errors === "" ? "" : `: ${errors.trim()}`) }
})
