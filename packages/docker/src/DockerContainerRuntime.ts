/**
 * `ContainerRuntime` over a Docker Engine.
 *
 *     create ─► attach ─► wait for the exit ─► start ─► report from inside, configuration, host's view
 *            ─► go, on stdin ─► frames ─► end of output ─► exit, confirmed by inspect ─► remove
 *
 * Only an agent's container reports a posture. For any other, the configuration is compared before the start.
 *
 * `Hardening.ts` decides the security settings, and `PostureReport.ts` checks which ones took effect. This module only
 * sends the requests and reads the answers.
 */
import {
  type Container,
  type ContainerError,
  type ContainerExit,
  ContainerRuntime,
  type ContainerSpec,
  type VolumeSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import { hostExchanged, type Posture } from "@cogni/sandbox-core/Posture"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, PostureMismatch, type RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import { Deferred, type Duration, Effect, Fiber, Layer, Schedule, Scope, Semaphore } from "effect"
import { availableParallelism } from "node:os"
import * as ContainerEnvironment from "./internal/container/ContainerEnvironment.ts"
import * as ContainerEvents from "./internal/engine/ContainerEvents.ts"
import * as DockerApi from "./DockerApi.ts"
import * as DockerReaper from "./DockerReaper.ts"
import * as Hardening from "./internal/container/Hardening.ts"
import * as HostOwner from "./HostOwner.ts"
import * as ImagePull from "./ImagePull.ts"
import * as AttachedContainer from "./internal/engine/AttachedContainer.ts"
import * as ConfirmedExit from "./internal/container/ConfirmedExit.ts"
import * as ContainerFiles from "./internal/container/ContainerFiles.ts"
import * as Deadline from "./internal/container/Deadline.ts"
import * as Supervisor from "./internal/container/Supervisor.ts"
import * as KernelFacts from "./internal/container/KernelFacts.ts"
import {
  engineMismatches,
  hostMismatches,
  parseReport,
  parseStatus
} from "./internal/container/PostureReport.ts"

/**
 * Maximum number of concurrent starts. Each needs a quarter of a second of the engine's CPU, so more than about twice
 * the cores only delays the slowest.
 */
const startsConcurrentMax = 2 * availableParallelism()

/** Options of a runtime. */
interface RuntimeOptions {
  /** Behavior for an image that the engine does not have. Default: {@link ImagePull.never}. */
  readonly images?: ImagePull.PullPolicy | undefined
}

export const make = Effect.fnUntraced(function* (options: RuntimeOptions = {}) {
  const api = yield* DockerApi.DockerApi
  const events = yield* ContainerEvents.make(api)
  const kernelFacts = yield* KernelFacts.make
  const ensureImage = yield* ImagePull.ensurer(options.images ?? ImagePull.never)
  const starts = yield* Semaphore.make(startsConcurrentMax)
  const owner = HostOwner.self()

  const labels = (runId: RunId, role: ResourceLabels.Role, runtimeSecondsMax: number) => {
    const now = Date.now()
    return ResourceLabels.make({
      runId,
      role,
      owner,
      startedAt: new Date(now),
      expiresAt: new Date(now + (runtimeSecondsMax + HostOwner.expiryGraceSeconds) * 1000)
    })
  }

  /** Removes a container of ours after a create without a response, which may still have created it. */
  const removeIfOurs = (name: string) =>
    api.inspect(name).pipe(
      Effect.flatMap((found) =>
        found?.Config.Labels?.[ResourceLabels.label.owner] === ResourceLabels.formatOwner(owner)
          ? api.remove(found.Id)
          : Effect.void
      ),
      Effect.ignore
    )

  const create = (spec: ContainerSpec, hostConfig: Hardening.HostConfig) => {
    const name = `cogni-${spec.runId}-${spec.role}`
    return Effect.acquireRelease(
      api
        .create({
          name,
          image: spec.image,
          ...Deadline.program(spec),
          env: [...ContainerEnvironment.ofContainer(spec), ...Deadline.environment(spec)],
          user: `${spec.user.userId}:${spec.user.groupId}`,
          labels: labels(spec.runId, spec.role, spec.limits.runtimeSecondsMax),
          hostConfig
        })
        .pipe(
          Effect.tapError((error) => (error._tag === "RuntimeUnavailable" ? removeIfOurs(name) : Effect.void))
        ),
      (id) => removePatiently(api.remove(id))
    )
  }

  const acquire = Effect.fn("ContainerRuntime.acquire")(function* (spec: ContainerSpec) {
    yield* requireInternal(api, spec)
    yield* ensureImage(spec.image)
    const scope = yield* Effect.scope
    const hostConfig = Hardening.hostConfig(spec)
    const held = spec.role === "agent"
    const id = yield* create(spec, hostConfig)
    const told = yield* events.follow(id)
    // The configuration is final once the container is created. Fetched here, so that no start waits for it.
    const created = yield* Effect.forkScoped(held ? Effect.undefined : api.inspect(id), {
      startImmediately: true
    })
    const socket = yield* Effect.acquireRelease(api.attach(id), (open) => Effect.sync(() => open.destroy()))
    const exited = yield* Deferred.make<ContainerExit, ContainerError>()
    let kernel: KernelFacts.KernelWatch | undefined
    let stopRequested = false
    const attached = yield* AttachedContainer.make({
      socket,
      held,
      onEnd: () => kernel?.sample()
    })

    const agentEnvironment = ContainerEnvironment.ofAgent(spec)
    const supervisor =
      spec.supervised === true
        ? yield* Supervisor.make({
            output: attached.output,
            write: attached.write,
            // The supervisor exits when its stdin closes, and the container with it.
            hangUp: Effect.sync(() => socket.destroy())
          })
        : undefined

    const exitOf = (state: DockerApi.Inspected["State"]): ContainerExit => {
      const facts = kernel?.facts()
      const oomKilled = state.OOMKilled || told.oomKilled || facts?.oomKilled === true
      const processesRefused = facts?.processesRefused === true
      return {
        exitCode: state.ExitCode,
        oomKilled,
        processesRefused,
        ...(Deadline.hasPassed(state, spec) ? { deadlinePassed: true } : {}),
        // The kernel kills and refuses only at the limit, so the limit was the peak even if no sample saw it.
        peak: {
          ...facts?.peak,
          ...(oomKilled ? { memoryBytes: spec.limits.memoryBytesMax } : {}),
          ...(processesRefused ? { processes: spec.limits.processesMax } : {})
        }
      }
    }

    const start = Effect.gen(function* () {
      yield* attached.listen
      if (!held) yield* verifyConfiguration(yield* Fiber.join(created), hostConfig)
      // Sent before the start, so that the response needs no further round trip.
      const waiting = yield* Effect.forkScoped(api.waitNextExit(id), { startImmediately: true })
      yield* starts.withPermits(1)(api.start(id))
      // Its input stays open, because every container ends when that ends: this happens when this process dies.
      if (spec.role === "proxy") yield* attached.write(Buffer.from(spec.stdin ?? ""))
      const inspected = held ? yield* api.inspect(id) : undefined
      kernel = inspected === undefined ? undefined : yield* kernelFacts.observe(inspected.State.Pid, id)
      yield* ConfirmedExit.state(api, id, { waited: Fiber.join(waiting), outputEnded: attached.ended }).pipe(
        Effect.flatMap((state) =>
          told.killed && !stopRequested
            ? ConfirmedExit.killedFromOutside(api)
            : Effect.sync(() => exitOf(state))
        ),
        Effect.onExit((exit) => Deferred.done(exited, exit)),
        Effect.forkScoped
      )
      return held ? yield* posture(inspected, spec, hostConfig, yield* attached.report) : undefined
    }).pipe(Scope.provide(scope), Effect.withSpan("Container.start"))

    const stop = Effect.fn("Container.stop")(function* (grace: Duration.Duration) {
      stopRequested = true
      // A supervisor exits when its stdin closes. It ignores signals, because one could come from inside the sandbox.
      yield* supervisor === undefined ? api.kill(id, "SIGTERM") : Effect.sync(() => socket.end())
      const ended = yield* Deferred.await(exited).pipe(Effect.exit, Effect.timeoutOption(grace))
      if (ended._tag === "None") yield* api.kill(id, "SIGKILL")
    })

    /**
     * Retries a pause or unpause until the container has left `status`. A container that ends meanwhile can be neither
     * paused nor unpaused, and the engine notices the end with a delay.
     */
    const outOf = (status: "running" | "paused", change: Effect.Effect<void, ContainerError>) =>
      change.pipe(
        Effect.catch((error) =>
          Effect.flatMap(api.inspect(id), (found) =>
            found?.State.Status === status ? Effect.fail(error) : Effect.void
          )
        ),
        Effect.retry({
          schedule: Schedule.spaced("50 millis"),
          times: 40,
          while: ({ _tag }) => _tag === "ContainerFailed"
        })
      )

    return {
      id,
      start,
      proceed: attached.go,
      output: attached.output,
      exit: Deferred.await(exited),
      send: attached.write,
      stop,
      whilePaused: (effect) =>
        Effect.acquireUseRelease(
          outOf("running", api.pause(id)),
          () => effect,
          () => outOf("paused", api.unpause(id))
        ),
      ...(supervisor === undefined
        ? takesNoCommands
        : {
            exec: (command) => supervisor.exec({ ...command, env: { ...agentEnvironment, ...command.env } }),
            // Without the caller's variables, which could change what the file program reports.
            files: ContainerFiles.make(supervisor)
          })
    } satisfies Container
  })

  return ContainerRuntime.of({
    acquire,
    acquireVolume: Effect.fn("ContainerRuntime.acquireVolume")(function* (spec: VolumeSpec) {
      const name = `cogni-${spec.runId}-${spec.role}${spec.index === undefined ? "" : `-${spec.index}`}`
      const { groupId, userId } = spec.owner
      yield* Effect.acquireRelease(
        api.createVolume({
          name,
          labels: labels(spec.runId, spec.role, spec.runtimeSecondsMax),
          tmpfsOptions: `size=${spec.bytesMax},nr_inodes=${spec.filesMax},uid=${userId},gid=${groupId},mode=0755`
        }),
        () => removePatiently(api.removeVolume(name))
      )
      return name
    }),
    sharesHost: yield* Effect.cached(
      Effect.map(api.info, (info) => HostOwner.isSharedWith(api.address, info))
    ),
    leftovers: (runId) =>
      Effect.map(api.labelled(`${ResourceLabels.label.run}=${runId}`), (found) =>
        found.map(({ name }) => name)
      )
  })
})

/**
 * Requires a `DockerApi`, and removes nothing of dead host processes: compose it with `DockerReaper`. Returns a new
 * layer on each call, so that each of two engines gets its own runtime.
 */
export const layerApi = (
  options?: RuntimeOptions
): Layer.Layer<ContainerRuntime, never, DockerApi.DockerApi> => Layer.effect(ContainerRuntime, make(options))

/**
 * A runtime on one engine. Building it removes what dead host processes left there, unless `reap` is false. The
 * resources of a living owner are never removed. This delays a start by at most 5 s, and a failure is only logged.
 */
export const layer = (
  options: DockerApi.Options & RuntimeOptions & { readonly reap?: boolean | undefined } = {}
): Layer.Layer<ContainerRuntime, RuntimeUnavailable> =>
  (options.reap === false ? layerApi(options) : Layer.provide(layerApi(options), reaping)).pipe(
    Layer.provide(DockerApi.layer(options))
  )

/** Built before the runtime, so that the first run finds the memory of dead processes free. */
const reaping: Layer.Layer<never, never, DockerApi.DockerApi> = Layer.effectDiscard(
  Effect.flatMap(DockerReaper.make, ({ reapAtStart }) => reapAtStart)
)

/** Retries for 5 seconds, because the engine may be restarting. The reaper removes what still remains then. */
const removePatiently = (remove: Effect.Effect<void, ContainerError>) =>
  remove.pipe(Effect.retry({ schedule: Schedule.spaced("500 millis"), times: 10 }), Effect.orDie)

/** Checks the configuration that the engine reports: the only witness for a container that is not an agent's. */
const verifyConfiguration = (
  inspected: DockerApi.Inspected | undefined,
  hostConfig: Hardening.HostConfig
): Effect.Effect<void, PostureMismatch> =>
  noneOf(
    inspected === undefined
      ? ["the engine does not know the container"]
      : engineMismatches(hostConfig, inspected.HostConfig)
  )

const noneOf = (mismatches: ReadonlyArray<string>): Effect.Effect<void, PostureMismatch> =>
  mismatches.length === 0 ? Effect.void : Effect.fail(new PostureMismatch({ mismatches }))

/** Combines the reports of all witnesses, or fails with the mismatches. */
const posture = (
  inspected: DockerApi.Inspected | undefined,
  spec: ContainerSpec,
  hostConfig: Hardening.HostConfig,
  report: string
): Effect.Effect<Posture, PostureMismatch> => {
  const seen = parseReport(report)
  if (seen === undefined || inspected === undefined) {
    return Effect.fail(new PostureMismatch({ mismatches: ["the sandbox's report is invalid"] }))
  }
  const status = KernelFacts.processStatus(inspected.State.Pid, inspected.Id)
  const mismatches = [
    ...engineMismatches(hostConfig, inspected.HostConfig),
    ...(status === undefined ? [] : hostMismatches(parseStatus(status))),
    ...hostExchanged(spec.mounts, KernelFile.bootId(), (target) =>
      KernelFacts.identityInside(inspected.State.Pid, inspected.Id, target)
    )
  ]
  const witnesses = status === undefined ? (["engine"] as const) : (["engine", "host"] as const)
  return Effect.as(noneOf(mismatches), { ...seen, confirmedBy: [...seen.confirmedBy, ...witnesses] })
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
            detail:
              internal === undefined
                ? `network ${networkName} does not exist`
                : `network ${networkName} is not internal, so it has a route out of this host`,
            remedy: `Create it with: docker network create --internal ${networkName}`
          })
        )
  )
}

/** The error of a container without a supervisor, which runs a single program. */
const unsupervised = new ContainerFailed({
  operation: "exec",
  detail: "the container does not accept commands",
  remedy: "Set `supervised: true` in its ContainerSpec"
})

const refuse = () => Effect.fail(unsupervised)

const takesNoCommands: Pick<Container, "exec" | "files"> = {
  exec: refuse,
  files: { read: refuse, write: refuse, list: refuse, stat: refuse, remove: refuse }
}
