/**
 * Carrier with the runs' sockets in a container, for an engine that cannot mount a host directory.
 *
 * The container has small volumes with a socket in each, and carries their connections over its standard streams
 * (`SocketTunnel`). A volume is a slot, leased to one run at a time. A run that finds no free slot starts another
 * container. A container has no network, no key and no policy: the gateway stays in this process.
 */
import { Cause, Deferred, Duration, Effect, Exit, Fiber, Latch, type Scope, Stream } from "effect"
import * as path from "node:path"
import { Duplex } from "node:stream"
import type { Container, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"
import * as RunId from "@cogni/sandbox-core/RunId"
import { named } from "@cogni/sandbox-core/Remedy"
import { Misconfigured, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import * as CallbackFibers from "../CallbackFibers.ts"
import { type CarriedSocket, type SocketCarrier, temporaryDirectory } from "./SocketCarrier.ts"
import * as SocketTunnel from "./SocketTunnel.ts"

export interface ContainerCarrierOptions {
  readonly image: string | undefined
  readonly runtime: ContainerRuntime["Service"]
  /** Slots of one container, each for one run at a time (default 16). */
  readonly slotsMax?: number | undefined
  readonly containersMax?: number | undefined
}

/** A container with its slots. */
interface Carrier {
  readonly tunnel: SocketTunnel.SocketTunnel
  readonly volumes: ReadonlyArray<string>
  readonly free: Set<number>
  readonly ended: Deferred.Deferred<never, LlmProxyError>
  /** Opens when the container is gone and no run leases a slot of it. */
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

/** How long after the end of its pipe a container's exit may be observed. */
const cutOffSeconds = 1

/** The container lives as long as the host process. This label only matters to a reaper that cannot see the process. */
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

/** Starts no container before the first run asks for a slot. */
export const make = Effect.fnUntraced(function* (
  options: ContainerCarrierOptions
): Effect.fn.Return<SocketCarrier, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const carriers = new Set<Carrier>()
  let containersTotal = 0
  let starting: Deferred.Deferred<void, LlmProxyError> | undefined

  /** Runs one container in its own scope, which is closed if it does not start, and when it is no longer used. */
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
          ? Effect.logWarning("resources of a gateway container may be left over", cause)
          : Effect.void
      )
    )

  const begin = Effect.gen(function* () {
    if (containersTotal >= (options.containersMax ?? containersMaxDefault))
      return yield* new ProxyFailed({
        detail: `all ${containersTotal} gateway containers are in use`,
        remedy: "Wait for a run to end, or run fewer at the same time"
      })
    const started = Deferred.makeUnsafe<void, LlmProxyError>()
    starting = started
    containersTotal++
    const fiber = yield* Effect.forkIn(carry(started), scope)
    // If the gateway is already closed, the fiber has not run at all.
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

  /** Leases a slot. All runs that find none wait for the same container. Only the wait can be interrupted. */
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
          // A slot is only leased again if its release was confirmed.
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
        catch: (cause) => failed(`cannot create the socket: ${String(cause)}`)
      })
      return {
        mounts: [
          { type: "volume", source: carrier.volumes[slot]!, target: path.dirname(socketPath), readOnly: true }
        ],
        directory,
        open: Effect.raceFirst(opened, Deferred.await(carrier.ended)).pipe(
          Effect.timeoutOrElse({
            duration: Duration.seconds(leaseSecondsMax),
            orElse: () => Effect.fail(failed(`did not create a socket within ${leaseSecondsMax} s`))
          })
        ),
        failure: Deferred.await(carrier.ended)
      } satisfies CarriedSocket
    })
  }
})

/** Lets a container's scope close, but not before its leases end: a volume that a sandbox mounts cannot be removed. */
const letGo = (carrier: Carrier) =>
  carrier.isGone && carrier.leasesTotal === 0 ? carrier.unused.open : Effect.void

const failed = (detail: string) =>
  new ProxyFailed({
    detail: `the gateway container ${detail}`,
    remedy: `Check the engine and the gateway image (${named("DockerDoctor")})`
  })

/** Starts a container with its volumes. Closing the scope removes them. */
const start = Effect.fnUntraced(function* ({
  image,
  runtime,
  slotsMax = slotsMaxDefault
}: ContainerCarrierOptions): Effect.fn.Return<Carrier, LlmProxyError, Scope.Scope> {
  if (image === undefined) {
    return yield* new Misconfigured({
      option: named("GatewayLlmProxy.image"),
      detail: "is not set, and this engine does not share the host's files",
      remedy: "Set it to the gateway image, which runs then use to reach the model"
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
    catch: (cause) => failed(`did not start: ${String(cause)}${errors()}`)
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(startSecondsMax),
      orElse: () => Effect.fail(failed(`did not start within ${startSecondsMax} s${errors()}`))
    })
  )
  return carrier
})

/** Fails with the reason when the container no longer carries connections. */
const goneOf = (container: Container, tunnel: SocketTunnel.SocketTunnel, errors: () => string) => {
  const exited = Effect.matchEffect(container.exit, {
    onSuccess: ({ exitCode }) => Effect.fail(failed(`ended with exit code ${exitCode}${errors()}`)),
    onFailure: (error) =>
      Effect.fail(error._tag === "ContainerFailed" ? failed(`ended unexpectedly: ${error.detail}`) : error)
  })
  // A container with a broken pipe is useless even if it still runs. Its exit tells more, and comes soon after.
  const cutOff = Effect.promise(() => tunnel.ended).pipe(
    Effect.andThen(Effect.sleep(Duration.seconds(cutOffSeconds))),
    Effect.andThen(Effect.suspend(() => Effect.fail(failed(`can no longer be reached${errors()}`))))
  )
  return Effect.raceFirst(exited, cutOff)
}

/**
 * Bytes queued for the container before HTTP/2 has to wait. On either side, HTTP/2 does not read while one of its
 * writes waits: if both pipes were full, each side would wait for the other to read.
 */
const queuedBytesMax = 64 * MiB

/** The container's standard streams as one duplex stream, which Node's HTTP/2 needs. */
const pipeOf = Effect.fnUntraced(function* (container: Container) {
  const sends = yield* CallbackFibers.make
  let errors = ""
  let wanted: (() => void) | undefined
  let wantsMore = true
  let pieces: Array<Uint8Array> = []
  let queuedBytes = 0
  let isSending = false
  let whenRoom: (() => void) | undefined
  /** Sends one write at a time, to keep the order. Everything that arrives meanwhile goes into the next one. */
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
      // The fiber continues within this call, and may be waiting again when it returns.
      const go = wanted
      wanted = undefined
      go?.()
    },
    // HTTP/2 corks its frames: together they are one write, which wakes the engine once.
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
    // The reader may already have asked, because the fiber can be delayed before it gets here.
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
