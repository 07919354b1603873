/**
 * `ContainerRuntime` over a Docker Engine.
 *
 *     create ─► attach ─► wait for the exit ─► start ─► report from inside, configuration, host's view
 *            ─► go, on stdin ─► frames ─► end of output ─► exit, confirmed by inspect ─► remove
 *
 * How a container is held is decided in `Hardening.ts`, what was really held in `PostureReport.ts`; this module only
 * asks and listens. An answer of the engine is believed when a second one confirms it: a wait can return when the
 * engine stops, and an attach stream can end while the container runs.
 */
import {
  type Container,
  type ContainerError,
  type ContainerExit,
  ContainerRuntime,
  type ContainerSpec,
  type ExecSpec,
  type OutputChunk,
  type VolumeSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import type { Posture } from "@cogni/sandbox-core/Posture"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, PostureMismatch, ProxyFailed, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import { Cause, Deferred, Duration, Effect, Fiber, Layer, Queue, Schedule, Scope, Semaphore, Stream } from "effect"
import type { Duplex } from "node:stream"
import { availableParallelism } from "node:os"
import * as ContainerEvents from "./ContainerEvents.ts"
import * as DockerApi from "./DockerApi.ts"
import * as Handshake from "./Handshake.ts"
import * as Hardening from "./Hardening.ts"
import * as HostOwner from "./HostOwner.ts"
import * as KernelFacts from "./KernelFacts.ts"
import * as LogStream from "./LogStream.ts"
import { engineMismatches, hostMismatches, parseReport, parseStatus } from "./PostureReport.ts"

/** The program that every image of an agent starts with. @category constants */
export const entrypoint = "/usr/local/bin/cogni-entrypoint"

/** How long a held container may take to report. @category constants */
export const reportSecondsMax = 30

/** After its run must be over, a resource of an owner that cannot be seen is kept this much longer. @category constants */
export const expiryGraceSeconds = 3600

/** After the last output an exit comes within milliseconds; from here on the engine is asked. */
const exitAfterOutputSecondsMax = 2

/** How long an engine that went away is waited for before its containers are given up. */
const engineAwaySecondsMax = 15

/** @category models */
export interface Options {
  /** As in `DOCKER_HOST`; the usual socket when left out. */
  readonly host?: string | undefined
  /**
   * Starts at one time. They are bound by the engine's CPU (a quarter of a second each), so more than about twice the
   * cores only makes the slowest slower.
   */
  readonly startsConcurrentMax?: number | undefined
}

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = Effect.fnUntraced(function* (options: Options = {}) {
  const api = yield* DockerApi.DockerApi
  const events = yield* ContainerEvents.make(api)
  const starts = yield* Semaphore.make(options.startsConcurrentMax ?? 2 * availableParallelism())
  const owner = HostOwner.self()

  const labels = (runId: RunId, role: ResourceLabels.Role, runtimeSecondsMax: number) => {
    const now = Date.now()
    return ResourceLabels.make({
      runId,
      role,
      owner,
      startedAt: new Date(now),
      expiresAt: new Date(now + (runtimeSecondsMax + expiryGraceSeconds) * 1000)
    })
  }

  /** After a create whose answer never came there may be a container all the same. */
  const removeIfOurs = (name: string) =>
    api.inspect(name).pipe(
      Effect.flatMap((found) =>
        found?.Config.Labels?.[ResourceLabels.label.owner] === ResourceLabels.formatOwner(owner)
          ? api.remove(found.Id)
          : Effect.void
      ),
      Effect.ignore
    )

  const acquire = Effect.fn("ContainerRuntime.acquire")(function* (spec: ContainerSpec) {
    yield* requireInternal(api, spec)
    const scope = yield* Effect.scope
    const name = `cogni-${spec.runId}-${spec.role}`
    const hostConfig = Hardening.hostConfig(spec)
    const held = spec.role === "agent"
    let stopRequested = false

    const id = yield* Effect.acquireRelease(
      api
        .create({
          name,
          image: spec.image,
          ...(held ? { entrypoint: [entrypoint], workingDirectory: "/workspace" } : {}),
          argv: spec.argv,
          env: Object.entries({ ...(held ? { HOME: "/home/agent" } : {}), ...spec.env, ...(held ? { COGNI_HOLD: "1" } : {}) }).map(
            ([key, value]) => `${key}=${value}`
          ),
          user: `${spec.user.userId}:${spec.user.groupId}`,
          labels: labels(spec.runId, spec.role, spec.limits.runtimeSecondsMax),
          hostConfig
        })
        .pipe(Effect.tapError((error) => (error._tag === "RuntimeUnavailable" ? removeIfOurs(name) : Effect.void))),
      (created) => {
        stopRequested = true
        return api.remove(created).pipe(Effect.retry({ schedule: Schedule.spaced("500 millis"), times: 10 }), Effect.orDie)
      }
    )
    const told = yield* events.follow(id)
    const socket = yield* Effect.acquireRelease(api.attach(id), (open) => Effect.sync(() => open.destroy()))

    const reported = yield* Deferred.make<string, ContainerError>()
    const started = yield* Deferred.make<void, ContainerError | ProxyFailed>()
    const exited = yield* Deferred.make<ContainerExit, ContainerError>()
    const output = yield* Queue.bounded<OutputChunk, Cause.Done | ContainerError>(32)
    const outputEnded = yield* Deferred.make<void>()
    const handshake = held ? Handshake.make() : undefined
    let kernel: KernelFacts.KernelWatch | undefined

    const hear = (said: Handshake.Said) => {
      switch (said._tag) {
        case "Reported":
          return Deferred.succeed(reported, said.report)
        case "Started":
          return Deferred.succeed(started, undefined)
        case "Failed":
          return Deferred.fail(
            started,
            new ProxyFailed({
              detail: `inside the sandbox, ${said.detail}`,
              remedy: "Look at the proxy's log in the run's directory, and at the upstream (cogni-sandbox doctor)"
            })
          )
      }
    }
    const endedEarly = () =>
      new ContainerFailed({
        operation: "entrypoint",
        detail: `the sandbox ended before the agent could start: ${handshake?.pending() || "it said nothing"}`,
        remedy: "Check that the image is built FROM the runtime image (images/README.md)"
      })

    const pump = frames(socket).pipe(
      Stream.runForEach((chunk) => {
        if (handshake === undefined) return Queue.offer(output, chunk)
        const { output: rest, said } = handshake.push(chunk)
        const heard = Effect.forEach(said, hear, { discard: true })
        return rest === undefined ? heard : Effect.andThen(heard, Queue.offer(output, rest))
      }),
      Effect.exit,
      Effect.tap(() => Effect.sync(() => kernel?.sample())),
      Effect.tap((exit) => (exit._tag === "Failure" ? Queue.failCause(output, exit.cause) : Queue.end(output))),
      Effect.andThen(Deferred.fail(reported, endedEarly())),
      Effect.andThen(Effect.suspend(() => Deferred.fail(started, endedEarly()))),
      Effect.andThen(Deferred.succeed(outputEnded, undefined))
    )

    const start = Effect.gen(function* () {
      yield* Effect.forkIn(pump, scope)
      const ending = yield* Effect.forkIn(api.waitNextExit(id), scope, { startImmediately: true })
      yield* starts.withPermits(1)(api.start(id))
      if (!held) yield* write(socket, spec.stdin ?? "")
      const inspected = yield* api.inspect(id)
      kernel =
        inspected === undefined
          ? undefined
          : yield* KernelFacts.observe(inspected.State.Pid, id).pipe(Scope.provide(scope))
      yield* Effect.forkIn(
        confirmExit(api, id, Fiber.await(ending), Deferred.await(outputEnded)).pipe(
          Effect.flatMap((state) =>
            told.killed && !stopRequested
              ? killedFromOutside(api)
              : Effect.sync((): ContainerExit => {
                  const facts = kernel?.facts()
                  return {
                    exitCode: state.ExitCode,
                    oomKilled: state.OOMKilled || told.oomKilled || facts?.oomKilled === true,
                    processesRefused: facts?.processesRefused === true,
                    peak: facts?.peak ?? {}
                  }
                })
          ),
          Effect.onExit((exit) => Deferred.done(exited, exit))
        ),
        scope
      )
      if (!held) return undefined
      return yield* posture(inspected, hostConfig, yield* awaitReport(Deferred.await(reported)))
    })

    return {
      id,
      start: Effect.withSpan(start, "Container.start"),
      proceed: write(socket, "go\n").pipe(
        Effect.andThen(Deferred.await(started)),
        Effect.timeoutOrElse({ duration: Duration.seconds(reportSecondsMax), orElse: () => Effect.fail(endedEarly()) })
      ),
      output: Stream.fromQueue(output),
      exit: Deferred.await(exited),
      stop: (grace) =>
        Effect.gen(function* () {
          stopRequested = true
          yield* api.kill(id, "SIGTERM")
          const ended = yield* Deferred.await(exited).pipe(Effect.exit, Effect.timeoutOption(grace))
          if (ended._tag === "None") yield* api.kill(id, "SIGKILL")
        }),
      exec: (execSpec) => exec(api, id, execSpec)
    } satisfies Container
  })

  return ContainerRuntime.of({
    acquire,
    acquireVolume: Effect.fn("ContainerRuntime.acquireVolume")(function* (spec: VolumeSpec) {
      const name = `cogni-${spec.runId}-${spec.role}`
      const { groupId, userId } = spec.owner
      yield* Effect.acquireRelease(
        api.createVolume({
          name,
          labels: labels(spec.runId, spec.role, spec.runtimeSecondsMax),
          tmpfsOptions: `size=${spec.bytesMax},nr_inodes=${spec.filesMax},uid=${userId},gid=${groupId},mode=0755`
        }),
        () =>
          api.removeVolume(name).pipe(Effect.retry({ schedule: Schedule.spaced("200 millis"), times: 25 }), Effect.orDie)
      )
      return name
    }),
    leftovers: (runId) =>
      Effect.map(api.labelled(`${ResourceLabels.label.run}=${runId}`), (found) => found.map(({ name }) => name))
  })
})

/** Needs a `DockerApi`. @category layers */
export const layerApi = (options?: Options): Layer.Layer<ContainerRuntime, never, DockerApi.DockerApi> =>
  Layer.effect(ContainerRuntime, make(options))

/** @category layers */
export const layer = (options?: Options): Layer.Layer<ContainerRuntime, RuntimeUnavailable> =>
  Layer.provide(layerApi(options), DockerApi.layer(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const brokenStream = (thrown: unknown) =>
  new RuntimeUnavailable({
    detail: `broke off the output of a container (${thrown instanceof Error ? thrown.message : String(thrown)})`,
    remedy: "It was stopped or has crashed: look at its log, then start it and try again"
  })

/** An attach stream as chunks of output; the reader's pace is the container's. */
const frames = (socket: Duplex): Stream.Stream<OutputChunk, RuntimeUnavailable> =>
  Stream.suspend(() => {
    const demultiplexer = LogStream.make()
    return Stream.fromAsyncIterable(socket as AsyncIterable<Uint8Array>, brokenStream).pipe(
      Stream.mapArray((all) => all),
      Stream.flatMap((bytes) => Stream.fromArray(demultiplexer.push(bytes)))
    )
  })

const write = (socket: Duplex, text: string): Effect.Effect<void> =>
  Effect.callback((resume) => {
    // A container that has ended cannot be written to; its end is told by its exit.
    socket.end(text, () => resume(Effect.void))
    socket.once("close", () => resume(Effect.void))
    socket.once("error", () => resume(Effect.void))
  })

const awaitReport = <E>(report: Effect.Effect<string, E>) =>
  report.pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(reportSecondsMax),
      orElse: () =>
        Effect.fail(
          new ContainerFailed({
            operation: "entrypoint",
            detail: `the sandbox did not report how it is held within ${reportSecondsMax} s`,
            remedy: "Check that the image is built FROM the runtime image (images/README.md)"
          })
        )
    })
  )

/** What all witnesses say together. */
const posture = (
  inspected: DockerApi.Inspected | undefined,
  hostConfig: Hardening.HostConfig,
  report: string
): Effect.Effect<Posture, PostureMismatch | ContainerFailed> => {
  const seen = parseReport(report)
  if (seen === undefined || inspected === undefined) {
    return Effect.fail(new PostureMismatch({ mismatches: ["the sandbox's report cannot be read"] }))
  }
  const status = KernelFacts.processStatus(inspected.State.Pid, inspected.Id)
  const amiss = [
    ...engineMismatches(hostConfig, inspected.HostConfig),
    ...(status === undefined ? [] : hostMismatches(parseStatus(status)))
  ]
  return amiss.length > 0
    ? Effect.fail(new PostureMismatch({ mismatches: amiss }))
    : Effect.succeed({
        ...seen,
        confirmedBy: [...seen.confirmedBy, "engine" as const, ...(status === undefined ? [] : ["host" as const])]
      })
}

const requireInternal = (api: DockerApi.DockerApi["Service"], spec: ContainerSpec) => {
  if (spec.network.mode === "none") return Effect.void
  const { networkName } = spec.network
  return Effect.flatMap(api.isInternalNetwork(networkName), (internal) =>
    internal === true
      ? Effect.void
      : Effect.fail(
          new ContainerFailed({
            operation: "create",
            detail: internal === undefined ? `there is no network ${networkName}` : `network ${networkName} has a route out`,
            remedy: `Make it with: docker network create --internal ${networkName}`
          })
        )
  )
}

/** The state of a container that has really ended: after a wait, or after its output, an inspect has the word. */
const confirmExit = (
  api: DockerApi.DockerApi["Service"],
  id: string,
  waited: Effect.Effect<unknown>,
  outputEnded: Effect.Effect<void>
): Effect.Effect<DockerApi.Inspected["State"], ContainerError> =>
  Effect.raceFirst(
    waited,
    Effect.andThen(outputEnded, Effect.sleep(Duration.seconds(exitAfterOutputSecondsMax)))
  ).pipe(
    Effect.andThen(
      api.inspect(id).pipe(
        Effect.retry({
          while: (error) => error._tag === "RuntimeUnavailable",
          schedule: Schedule.spaced("250 millis"),
          times: engineAwaySecondsMax * 4
        }),
        Effect.flatMap((found) =>
          found === undefined
            ? Effect.fail(
                new ContainerFailed({
                  operation: "wait",
                  detail: "the container was removed by somebody else while it ran",
                  remedy: "Leave containers with our labels alone; see what else removes containers on this engine"
                })
              )
            : Effect.succeed(found.State)
        ),
        Effect.repeat({ schedule: Schedule.spaced("200 millis"), while: (state) => state.Running })
      )
    )
  )

const killedFromOutside = (api: DockerApi.DockerApi["Service"]): Effect.Effect<never, ContainerError> =>
  api.ping.pipe(
    Effect.timeoutOption(Duration.seconds(2)),
    Effect.andThen(
      Effect.fail(
        new ContainerFailed({
          operation: "wait",
          detail: "the container was killed by somebody else, or by the engine as it stopped",
          remedy: "See who stops containers on this engine (its log), then try again"
        })
      )
    )
  )

const exec = (api: DockerApi.DockerApi["Service"], id: string, spec: ExecSpec) =>
  Effect.gen(function* () {
    const command = yield* Effect.acquireRelease(
      api.exec(id, {
        argv: spec.argv,
        env: Object.entries(spec.env ?? {}).map(([key, value]) => `${key}=${value}`),
        workingDirectory: spec.workingDirectory
      }),
      ({ stream }) => Effect.sync(() => stream.destroy())
    )
    return {
      output: frames(command.stream),
      exitCode: api.execExitCode(command.id).pipe(
        Effect.repeat({ schedule: Schedule.spaced("20 millis"), while: (code) => code === undefined, times: 500 }),
        Effect.flatMap((code) =>
          code === undefined
            ? Effect.fail(
                new ContainerFailed({
                  operation: "exec",
                  detail: "the command's output ended and its exit code never came",
                  remedy: "Look at the engine's log (cogni-sandbox doctor)"
                })
              )
            : Effect.succeed(code)
        )
      )
    }
  })
