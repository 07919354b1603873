/**
 * `ContainerRuntime` over a Docker Engine.
 *
 *     create ─► attach ─► wait for the exit ─► start ─► report from inside, configuration, host's view
 *            ─► go, on stdin ─► frames ─► end of output ─► exit, confirmed by inspect ─► remove
 *
 * Only an agent's container reports a posture. For any other, the configuration is compared before the start. A sandbox
 * that waits for a run reports its posture at its start, and again when it has got its run.
 *
 * `Hardening.ts` decides the security settings, and `PostureReport.ts` checks which ones took effect. This module only
 * sends the requests and reads the answers.
 */
import {
  type Container,
  type ContainerError,
  ContainerRuntime,
  type ContainerSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import { type VolumeSpec } from "@cogni/sandbox-core/ContainerMount"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunStarts from "@cogni/sandbox-core/RunStarts"
import { ContainerFailed, type RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { asContainer, nameInUse, type WaitingSpec } from "@cogni/sandbox-core/WaitingSandbox"
import { Duration, Effect, Exit, Layer, Schedule, Scope, Semaphore } from "effect"
import { availableParallelism } from "node:os"
import * as ContainerEnvironment from "./internal/container/ContainerEnvironment.ts"
import * as ContainerEvents from "./internal/engine/ContainerEvents.ts"
import * as DockerApi from "./DockerApi.ts"
import * as DockerReaper from "./DockerReaper.ts"
import * as GVisor from "./internal/container/GVisor.ts"
import * as Hardening from "./internal/container/Hardening.ts"
import * as HostOwner from "./HostOwner.ts"
import * as HostsFile from "./internal/container/HostsFile.ts"
import * as ImagePull from "./ImagePull.ts"
import * as Deadline from "./internal/container/Deadline.ts"
import * as DirectoryBinder from "./internal/container/DirectoryBinder.ts"
import * as EngineContainer from "./internal/container/EngineContainer.ts"
import * as JoinedContainer from "./internal/container/JoinedContainer.ts"
import * as KernelFacts from "./internal/container/KernelFacts.ts"
import * as NetworkHolder from "./internal/container/NetworkHolder.ts"
import * as ReadyNetworks from "./internal/container/ReadyNetworks.ts"
import * as Removals from "./internal/container/Removals.ts"
import * as WaitingSandbox from "./internal/container/WaitingSandbox.ts"

/**
 * Maximum number of concurrent starts. Each needs a quarter of a second of the engine's CPU, so more than about twice
 * the cores only delays the slowest.
 */
const startsConcurrentMax = 2 * availableParallelism()

/** Longest time for which other work on the engine waits for the starts of runs, in milliseconds. */
const quietWaitMillisMax = 5000

/** Time after a start within which a short program ends, in milliseconds. */
const quietMillis = 100

/** The longest that a run can last, in seconds. */
const runSecondsMax = 86_400

/** How sandboxes without a network of the engine start, as a message names it. */
const netlessWay = "a network that the engine does not configure"

/** A random ID, which is never that of a run. */
const waitingId = () => RunId.make(`waiting-${crypto.randomUUID().replaceAll("-", "")}`)

const nameOf = (runId: RunId, role: ResourceLabels.Role) => `cogni-${runId}-${role}`

/** Options of a runtime. */
interface RuntimeOptions {
  /** Behavior for an image that the engine does not have. Default: {@link ImagePull.never}. */
  readonly images?: ImagePull.PullPolicy | undefined
  /**
   * OCI runtime that starts containers, by its name on the engine, such as `crun` (default: the engine's). The posture
   * of each sandbox is verified as with any other, before its agent starts.
   */
  readonly engineRuntime?: string | undefined
}

const make: (
  options?: RuntimeOptions
) => Effect.Effect<ContainerRuntime["Service"], never, DockerApi.DockerApi | Scope.Scope> = Effect.fnUntraced(
  function* (options = {}) {
    const api = yield* DockerApi.DockerApi
    const { engineRuntime } = options
    const checkLimits = (spec: Pick<ContainerSpec, "limits" | "role">) => {
      const refused = GVisor.isNamed(engineRuntime) ? GVisor.refusal(spec) : undefined
      return refused === undefined ? Effect.void : Effect.fail(refused)
    }
    /** Returns the security settings of a container, unless this runtime cannot start it. */
    const hardened = (spec: ContainerSpec, hosts?: HostsFile.HostsFile) =>
      Effect.map(checkLimits(spec), () => Hardening.hostConfig(spec, { engineRuntime, hosts }))
    const events = yield* ContainerEvents.make(api)
    const kernelFacts = yield* KernelFacts.make
    const ensureImage = yield* ImagePull.ensurer(options.images ?? ImagePull.never)
    const starts = yield* Semaphore.make(startsConcurrentMax)
    const runStarts = RunStarts.make({ quietMillis, waitMillisMax: quietWaitMillisMax })
    const info = yield* Effect.cachedWithTTL(
      api.info,
      // An engine that does not answer now may answer the next run.
      (exit) => (Exit.isSuccess(exit) ? Duration.infinity : 0)
    )
    const sharesHost = Effect.map(info, (engine) => HostOwner.isSharedWith(api.address, engine))
    const hostsFiles = yield* HostsFile.make({ address: api.address, info, engineRuntime })
    const binder = yield* DirectoryBinder.make({ address: api.address, info: api.info, engineRuntime })
    const removals = yield* Removals.make(runStarts.quiet)
    const owner = HostOwner.self()
    /** Waiting sandboxes that got a run, by its ID. The engine learns their new names later. */
    const bound = new Map<RunId, { readonly id: string; isStarted: boolean }>()
    const engine: EngineContainer.Engine = { api, events, kernelFacts, starts }

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

    /** Creates a container, which the scope removes under whatever name it has by then. */
    const create = (
      { image, runId, user, ...spec }: ContainerSpec,
      options: Pick<
        DockerApi.CreateOptions,
        "argv" | "entrypoint" | "env" | "networkDisabled" | "workingDirectory"
      > & {
        readonly hostConfig: Hardening.HostConfig
        readonly expirySecondsMax: number
        readonly role?: ResourceLabels.Role
      }
    ) => {
      const { expirySecondsMax, role = spec.role, ...program } = options
      const name = nameOf(runId, role)
      return Effect.acquireRelease(
        api
          .create({
            name,
            image,
            ...program,
            user: `${user.userId}:${user.groupId}`,
            labels: labels(runId, role, expirySecondsMax)
          })
          .pipe(
            Effect.tapError((error) =>
              error._tag === "RuntimeUnavailable" ? removeIfOurs(name) : Effect.void
            )
          ),
        (id) => removePatiently(api.remove(id))
      )
    }

    /**
     * Creates a container of a run, in a network namespace that is ready, if there is one. `isNetless`: the engine
     * does not configure its network. If no process is left in it but its first, it ends in the background: the engine
     * needs as long for that as for a start.
     */
    const acquireIn = Effect.fnUntraced(function* (
      spec: ContainerSpec,
      {
        holder,
        isNetless
      }: Pick<NetworkHolder.NetworkHolder, "isNetless"> & {
        readonly holder?: NetworkHolder.NetworkHolder | undefined
      }
    ) {
      yield* checkLimits(spec)
      // Older than the container, so that it is removed after it.
      const hosts = isNetless && spec.role === "agent" ? yield* hostsFiles.acquire : undefined
      const own = yield* hardened(spec, hosts)
      const hostConfig = holder === undefined ? own : { ...own, NetworkMode: `container:${holder.id}` }
      let isEmpty = () => false
      // Closed in the background too, because the container ends when its streams do.
      const scope = yield* Effect.acquireRelease(Scope.make(), (opened, exit) =>
        Effect.suspend(() => {
          const end = Scope.close(opened, exit)
          return isEmpty() && usesNothingElse(spec) ? removals.start(spec.runId, end) : end
        })
      )
      const opened = yield* create(spec, {
        hostConfig,
        ...Deadline.program(spec),
        env: [...ContainerEnvironment.ofContainer(spec), ...Deadline.environment(spec)],
        networkDisabled: isNetless && holder === undefined,
        expirySecondsMax: spec.limits.runtimeSecondsMax
      }).pipe(
        Effect.flatMap((id) =>
          EngineContainer.open(engine, id, {
            spec,
            hostConfig,
            networkMismatches: holder?.mismatches,
            hosts,
            isWaiting: false
          })
        ),
        Scope.provide(scope)
      )
      isEmpty = opened.isEmpty
      return opened.container
    })

    const networks = ReadyNetworks.make({
      imageId: api.imageId,
      // Limited to a few processes, a holder has no place for gVisor's threads.
      sharesHost: GVisor.isNamed(engineRuntime) ? Effect.succeed(false) : sharesHost,
      quiet: runStarts.quiet,
      start: Effect.fnUntraced(function* (image) {
        const spec = NetworkHolder.specOf(image, waitingId())
        const isNetless = yield* hostsFiles.isPossible(image)
        const hostConfig = yield* hardened(spec)
        const id = yield* create(spec, {
          hostConfig,
          ...NetworkHolder.program,
          env: [],
          networkDisabled: isNetless,
          expirySecondsMax: runSecondsMax,
          role: "network"
        })
        return yield* NetworkHolder.make(
          api,
          isNetless,
          yield* EngineContainer.open(engine, id, { spec, hostConfig, isWaiting: true })
        )
      })
    })

    /** Acquires a container with a namespace of its own, which the engine configures only if it must. */
    const acquireAlone = Effect.fnUntraced(function* (spec: ContainerSpec, startEnded: Effect.Effect<void>) {
      const configured = acquireIn(spec, { isNetless: false })
      if (!(yield* hostsFiles.isPossible(spec.image))) return startingUntil(yield* configured, startEnded)
      const own = yield* Effect.scope
      const scope = yield* Scope.fork(own)
      return yield* JoinedContainer.make({
        way: netlessWay,
        startEnded,
        joined: Scope.provide(acquireIn(spec, { isNetless: true }), scope),
        isOfWay: hostsFiles.isCauseOf,
        noteFailure: () => hostsFiles.noteFailure(spec.image),
        leave: Scope.close(scope, Exit.void),
        unjoined: Scope.provide(configured, own)
      })
    })

    const acquire = Effect.fn("ContainerRuntime.acquire")(function* (spec: ContainerSpec) {
      const { image, network, role, runId } = spec
      // Until its agent starts, the run may leave the sandbox and start cold.
      if (role === "agent" && bound.get(runId)?.isStarted === true)
        return yield* nameInUse(nameOf(runId, role))
      yield* requireInternal(api, spec)
      yield* ensureImage(image)
      // Our own programs resolve no names, so they need no `/etc/hosts`.
      if (role !== "agent") return yield* acquireIn(spec, { isNetless: network.mode === "none" })
      // An earlier container of this ID has its name until it is removed.
      yield* removals.settled(runId)
      const startEnded = yield* Effect.acquireRelease(runStarts.note, (end) => end)
      if (network.mode !== "none")
        return startingUntil(yield* acquireIn(spec, { isNetless: false }), startEnded)
      // The holder goes with the container that has joined it, in any order: each keeps the namespace.
      const scope = yield* Scope.fork(yield* Effect.scope)
      const taken = yield* Scope.provide(
        Effect.acquireRelease(networks.take(image), (one) =>
          one === undefined ? Effect.void : removals.start(runId, one.remove)
        ),
        scope
      )
      if (taken === undefined) return yield* acquireAlone(spec, startEnded)
      const own = yield* Effect.scope
      const { holder } = taken
      return yield* JoinedContainer.make({
        way: "a ready network",
        startEnded,
        joined: Scope.provide(acquireIn(spec, { holder, isNetless: holder.isNetless }), scope),
        isOfWay: (error) => NetworkHolder.isCauseOf(holder, error) || hostsFiles.isCauseOf(error),
        // Without its file, the run would only fail in the same way again.
        noteFailure: (error) =>
          Effect.andThen(
            networks.noteFailure,
            hostsFiles.isCauseOf(error) ? hostsFiles.noteFailure(image) : Effect.void
          ),
        leave: Scope.close(scope, Exit.void),
        unjoined: Scope.provide(acquireAlone(spec, startEnded), own)
      })
    })

    /** Prepares a sandbox. With `hosts`, the engine does not configure its network. */
    const prepareIn = Effect.fnUntraced(function* (
      { waitSecondsMax }: WaitingSpec,
      spec: ContainerSpec,
      hosts: HostsFile.HostsFile | undefined
    ) {
      const hostConfig = yield* hardened(spec, hosts)
      // Older than the container, so that it is found here until it is removed.
      const runs: Array<RunId> = []
      yield* Effect.addFinalizer(() => Effect.sync(() => runs.forEach((runId) => bound.delete(runId))))
      const id = yield* create(spec, {
        hostConfig,
        ...Deadline.waitingProgram(spec, waitSecondsMax),
        env: ContainerEnvironment.ofWaiting,
        networkDisabled: hosts !== undefined,
        expirySecondsMax: waitSecondsMax + runSecondsMax
      })
      const opened = yield* EngineContainer.open(engine, id, { spec, hostConfig, hosts, isWaiting: true })
      const noteRun = (runId: RunId) => {
        if (bound.has(runId)) return undefined
        const run = { id, isStarted: false }
        bound.set(runId, run)
        runs.push(runId)
        return { noteStart: Effect.sync(() => void (run.isStarted = true)) }
      }
      return yield* WaitingSandbox.make(api, {
        ...opened,
        binder,
        spec,
        hostConfig,
        checkLimits,
        hardened: (run) => Hardening.hostConfig(run, { engineRuntime, hosts }),
        nameOf,
        noteRun
      })
    })

    const prepare = Effect.fn("ContainerRuntime.prepare")(function* (waiting: WaitingSpec) {
      const spec = asContainer(waiting)
      yield* checkLimits(spec)
      yield* ensureImage(spec.image)
      const own = yield* Effect.scope
      if (!(yield* hostsFiles.isPossible(spec.image))) return yield* prepareIn(waiting, spec, undefined)
      const scope = yield* Scope.fork(own)
      const netless = Effect.flatMap(hostsFiles.acquire, (hosts) => prepareIn(waiting, spec, hosts))
      return yield* Scope.provide(netless, scope).pipe(
        Effect.catchIf(hostsFiles.isCauseOf, ({ message }) =>
          Effect.logWarning(`${netlessWay} could not be used: ${message}`).pipe(
            Effect.andThen(hostsFiles.noteFailure(spec.image)),
            Effect.andThen(Scope.close(scope, Exit.void)),
            Effect.andThen(Scope.provide(prepareIn(waiting, spec, undefined), own))
          )
        )
      )
    })

    return ContainerRuntime.of({
      checkLimits,
      acquire,
      prepare,
      whyUnbound: binder.whyNot,
      readyNetworks: networks.keep,
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
      sharesHost,
      // The label of a sandbox that waited for its run is not the run's, but its name is, soon after its start.
      leftovers: (runId) =>
        Effect.map(Effect.andThen(removals.settled(runId), api.labelled(ResourceLabels.label.run)), (found) =>
          found
            .filter(
              ({ id, labels, name }) =>
                labels[ResourceLabels.label.run] === runId ||
                name === nameOf(runId, "agent") ||
                id === bound.get(runId)?.id
            )
            .map(({ name }) => name)
        )
    })
  }
)

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

/** A container that notes the end of its start. */
const startingUntil = (container: Container, startEnded: Effect.Effect<void>): Container => ({
  ...container,
  start: Effect.ensuring(container.start, startEnded)
})

/** Returns whether a container uses no volume and no network, which cannot be removed while the container exists. */
const usesNothingElse = ({ mounts, network }: ContainerSpec): boolean =>
  network.mode === "none" && mounts.every(({ type }) => type === "directory")

/** Retries for 5 seconds, because the engine may be restarting. The reaper removes what still remains then. */
const removePatiently = (remove: Effect.Effect<void, ContainerError>) =>
  remove.pipe(Effect.retry({ schedule: Schedule.spaced("500 millis"), times: 10 }), Effect.orDie)

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
