/**
 * A created container of the engine as a `Container`: its streams, its start, its checks and its end.
 *
 * The container of a waiting sandbox is checked twice: when it starts, and when it has got its run.
 *
 * If this host reads what the kernel counts, the first process of an agent's container reports the exit when no other
 * process is left. The run does not wait for the engine, which takes long to notice it.
 */
import type {
  Container,
  ContainerError,
  ContainerExit,
  ContainerSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import { ContainerFailed, type PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { notLoaded, unusable } from "@cogni/sandbox-core/WaitingSandbox"
import { Clock, Deferred, type Duration, Effect, Fiber, Schedule, Scope, type Semaphore } from "effect"
import { randomBytes } from "node:crypto"
import type * as DockerApi from "../../DockerApi.ts"
import * as AttachedContainer from "../engine/AttachedContainer.ts"
import type * as ContainerEvents from "../engine/ContainerEvents.ts"
import type { KnownContainer } from "../engine/KnownContainer.ts"
import * as Binding from "./Binding.ts"
import * as ConfirmedExit from "./ConfirmedExit.ts"
import * as ContainerEnvironment from "./ContainerEnvironment.ts"
import * as ContainerFiles from "./ContainerFiles.ts"
import * as Deadline from "./Deadline.ts"
import * as DirectoryBinder from "./DirectoryBinder.ts"
import * as EngineConfiguration from "./EngineConfiguration.ts"
import type * as Hardening from "./Hardening.ts"
import type * as HostsFile from "./HostsFile.ts"
import * as LoadedProgram from "./LoadedProgram.ts"
import type * as KernelFacts from "./KernelFacts.ts"
import * as PostureReport from "./PostureReport.ts"
import * as Supervisor from "./Supervisor.ts"
import * as Witnesses from "./Witnesses.ts"

/** Services that all containers of a runtime share. */
export interface Engine {
  readonly api: DockerApi.DockerApi["Service"]
  readonly events: Effect.Success<ReturnType<typeof ContainerEvents.make>>
  readonly kernelFacts: Effect.Success<typeof KernelFacts.make>
  /** Bounds the concurrent starts. */
  readonly starts: Semaphore.Semaphore
}

/** Specification that a container is checked against. */
export interface Asked {
  readonly spec: ContainerSpec
  readonly hostConfig: Hardening.HostConfig
  /** Start of the run, if that is not the start of the container. */
  readonly sinceMillis?: number | undefined
  /** Lists what the kernel shows to be wrong with the network namespace that it joins, a sentence each. */
  readonly networkMismatches?:
    | ((joined: Pick<DockerApi.Inspected, "Id" | "State">) => ReadonlyArray<string>)
    | undefined
  /** Its `/etc/hosts`, if the engine does not configure its network. */
  readonly hosts?: HostsFile.HostsFile | undefined
}

type Compared = EngineConfiguration.Compared
type Witnessed = Witnesses.Witnessed

/** Questions of a claim to the engine. */
export interface OnEngine {
  /** Fails if the names of the container and its image are not as they must be. The engine needs longest for it. */
  readonly named: Effect.Effect<void, ContainerError>
  /** Gives the container the limits of its run, and asks for its configuration. Fails if it cannot serve a run. */
  readonly inspected: (
    asked: Hardening.HostConfig
  ) => Effect.Effect<DockerApi.Inspected | undefined, ContainerError>
}

const atOnce = { startImmediately: true }

interface Opening extends Asked {
  readonly isWaiting: boolean
}

export const open = Effect.fnUntraced(function* (
  { api, events, kernelFacts, starts }: Engine,
  id: string,
  { isWaiting, ...first }: Opening
) {
  let asked: Asked = first
  const { role, stdin, supervised } = first.spec
  const held = role === "agent"
  const [scope, told] = [yield* Effect.scope, yield* events.follow(id)]
  // The configuration is final once the container is created. Fetched here, so that no start waits for it.
  const created = yield* Effect.forkScoped(held ? Effect.undefined : api.inspect(id), atOnce)
  const socket = yield* Effect.acquireRelease(api.attach(id), (open) => Effect.sync(() => open.destroy()))
  const exited = yield* Deferred.make<ContainerExit, ContainerError>()
  let kernel: KernelFacts.KernelWatch | undefined
  const [configuration, look] = [EngineConfiguration.make({ isWaiting }), Witnesses.makeLook()]
  const { forget, inspectAgain } = inspector(api, id)
  /** The token is sent with `go`. Empty: the engine reports the exit. */
  let [stopRequested, isEmpty, goToken] = [false, false, ""]
  /** First process of a container that waits, on this host, if a directory can be bound into it. */
  let processId: number | undefined
  let atStart: Compared = { inspected: undefined, mismatches: [] }
  const spareToken = randomBytes(16).toString("hex")
  const attached = yield* AttachedContainer.make({ socket, held, isWaiting, onEnd: () => kernel?.sample() })
  const supervisor = supervised === true ? yield* Supervisor.make(attached) : undefined

  /** Samples the container. Not while it waits, so that it costs no processor. */
  const follow = Effect.suspend(() => (kernel === undefined ? Effect.void : kernelFacts.follow(kernel)))

  /** Completes the exit when the first process has reported it. Its control groups exist until this host hangs up. */
  const hearExit = attached.told.pipe(
    Effect.flatMap((exitCode): Effect.Effect<unknown> => {
      // The engine reports the exit.
      if (told.killed) return Effect.sync(() => socket.end())
      isEmpty = true
      return Deferred.succeed(exited, {
        ...exitOf({ ExitCode: exitCode, OOMKilled: false }, asked, { told, kernel }),
        isEmpty
      })
    }),
    Effect.forkScoped
  )

  /** The token, made in advance, with which the first process reports the exit. Empty if only the engine can. */
  const token = Effect.gen(function* () {
    if (kernel?.isComplete !== true || supervisor !== undefined) return ""
    yield* hearExit
    return spareToken
  })
  const seenIn = (now: Compared, by: Witnessed) => Witnesses.posture(now, { ...asked, ...kernelFacts }, by)

  const start = Effect.gen(function* () {
    yield* attached.listen
    if (!held) yield* verifyConfiguration(yield* Fiber.join(created), asked.hostConfig)
    // Sent before the start, so that the response needs no further round trip.
    const waiting = yield* Effect.forkScoped(api.waitNextExit(id), atOnce)
    yield* starts.withPermits(1)(api.start(id))
    // Its input stays open, because every container ends when that ends: this happens when this process dies.
    if (role === "proxy") yield* attached.write(Buffer.from(stdin ?? ""))
    const inspected = held ? yield* isWaiting ? inspectAgain : api.inspect(id) : undefined
    if (inspected !== undefined) kernel = yield* kernelFacts.open(inspected.State.Pid, id)
    if (!isWaiting) yield* follow
    yield* ConfirmedExit.state(api, id, { waited: Fiber.join(waiting), outputEnded: attached.ended }).pipe(
      Effect.flatMap((state) =>
        told.killed && !stopRequested
          ? ConfirmedExit.killedFromOutside(api)
          : Effect.sync(() => exitOf(state, asked, { told, kernel }))
      ),
      Effect.onExit((exit) => Deferred.done(exited, exit)),
      Effect.forkScoped
    )
    if (!held) return undefined
    atStart = configuration.of(inspected, asked.hostConfig)
    const report = yield* attached.report
    const seen = yield* seenIn(atStart, look(report, atStart, asked))
    processId = PostureReport.takesDirectory(report) ? inspected?.State.Pid : undefined
    if (!isWaiting && PostureReport.takesToken(report)) goToken = yield* token
    return seen
  }).pipe(Scope.provide(scope), Effect.withSpan("Container.start"))

  /** Lets a waiting container load a program, and checks it again. */
  const load = (preload: ReadonlyArray<string>) =>
    Effect.flatMap(LoadedProgram.load(preload, { ...attached, troubled }), (report) =>
      seenIn(atStart, look(report, atStart, asked))
    )

  /**
   * Tells a waiting container its run, and the engine at the same time, and checks the container again. A directory of
   * the host is bound into it before it hears of the run.
   */
  const claim = (
    run: Pick<Asked, "spec"> & { readonly hostConfig: () => Hardening.HostConfig },
    { inspected, named }: OnEngine,
    bindDirectory?: (processId: number) => Effect.Effect<void, ContainerError>
  ) =>
    Effect.gen(function* () {
      asked = {
        ...first,
        spec: run.spec,
        networkMismatches: undefined,
        sinceMillis: yield* Clock.currentTimeMillis
      }
      // The counts of the kernel are read again when the sandbox has reported.
      yield* requireUntroubled(() => troubleOf(told, kernel, attached.hasSpoken()))
      const word = yield* token
      const hasDirectory = bindDirectory !== undefined
      const place = processId
      if (hasDirectory && place === undefined)
        return yield* unusable("its image is older than this library", "Rebuild the image")
      const again = run.spec.preload === undefined ? undefined : LoadedProgram.nonce()
      const message = Binding.encode(run.spec, { token: word, hasDirectory })
      const binding = place === undefined ? undefined : bindDirectory?.(place)
      const claiming = (binding ?? Effect.void).pipe(
        Effect.andThen(attached.claim(again === undefined ? message : `${again}\n${message}`, word)),
        // The engine's answers come later in most cases.
        Effect.map((report) => ({ report, witnessed: look(report, atStart, asked) }))
      )
      const comparing = Effect.suspend(() => {
        const hostConfig = run.hostConfig()
        return Effect.map(inspected(hostConfig), (found) => ({
          hostConfig,
          compared: configuration.of(found, hostConfig)
        }))
      })
      // The claim is first, so that the sandbox works while the questions are asked.
      const [{ report, witnessed }, , { compared, hostConfig }] = yield* Effect.all(
        [claiming, named, comparing],
        { concurrency: 3 }
      )
      forget()
      // The limits of the run may have been in force before its program is.
      yield* requireUntroubled(troubled)
      const wrong = again === undefined ? undefined : PostureReport.programMismatches(report, again)[0]
      if (wrong !== undefined) return yield* notLoaded(wrong)
      const seen = yield* seenIn(compared, witnessed)
      yield* Witnesses.noneOf(PostureReport.limitMismatches(hostConfig, kernel?.limits() ?? {}))
      if (hasDirectory) yield* Witnesses.noneOf(DirectoryBinder.mismatches(seen))
      return seen
    }).pipe(
      // A sandbox ends itself when its program is of no use.
      Effect.mapError((error) =>
        run.spec.preload !== undefined &&
        error._tag === "ContainerFailed" &&
        (attached.hasSpoken() || attached.hasEnded())
          ? notLoaded(error.detail)
          : error
      ),
      Scope.provide(scope),
      Effect.withSpan("Container.claim")
    )

  const stop = Effect.fn("Container.stop")(function* (grace: Duration.Duration) {
    stopRequested = true
    // Its control groups may be removed before anything else of them is read.
    kernel?.sample()
    // A supervisor exits when its stdin closes. It ignores signals, because one could come from inside the sandbox.
    yield* supervisor === undefined ? api.kill(id, "SIGTERM") : Effect.sync(() => socket.end())
    const ended = yield* Deferred.await(exited).pipe(Effect.exit, Effect.timeoutOption(grace))
    if (ended._tag === "Some") return
    kernel?.sample()
    yield* api.kill(id, "SIGKILL")
  })

  const container: Container = {
    id,
    start,
    proceed: Effect.suspend(() =>
      isWaiting ? Effect.andThen(attached.go(""), Scope.provide(follow, scope)) : attached.go(goToken)
    ),
    output: attached.output,
    exit: Deferred.await(exited),
    send: attached.write,
    stop,
    whilePaused: (effect) => paused(api, id, effect),
    processorMicros: Effect.sync(() => kernel?.processorMicros()),
    ...(supervisor === undefined ? takesNoCommands : commandsOf(supervisor, () => asked.spec))
  }
  /** Ends a container whose run cannot go on. */
  const fail = (error: ContainerError) =>
    Effect.andThen(Deferred.fail(exited, error), Effect.ignore(api.kill(id, "SIGKILL")))
  const troubled = () => troubleOf(told, sampled(kernel), attached.hasSpoken())
  const [used, endedNow] = [() => kernel?.memoryBytes(), attached.hasEnded]
  return { container, claim, load, fail, inspectAgain, troubled, used, endedNow, isEmpty: () => isEmpty }
})

/** Asks the engine about a container that waits, and keeps its last answer. */
const inspector = (api: Engine["api"], id: string) => {
  let known: KnownContainer<DockerApi.Inspected> | undefined
  return {
    inspectAgain: Effect.suspend(() => api.inspectAgain(id, known)).pipe(
      Effect.map((found) => (known = found)?.inspected)
    ),
    forget: () => {
      known = undefined
    }
  }
}

const sampled = (kernel: KernelFacts.KernelWatch | undefined) => {
  kernel?.sample()
  return kernel
}

/** Returns what happened to a waiting container that would be taken for something of its run. */
const troubleOf = (
  told: { readonly killed: boolean; readonly oomKilled: boolean; readonly entered: boolean },
  kernel: KernelFacts.KernelWatch | undefined,
  hasSpoken: boolean
): string | undefined => {
  const facts = kernel?.facts()
  if (hasSpoken) return "it wrote something before it had a run"
  if (told.killed) return "it was sent a signal while it waited"
  if (told.entered) return "another program was started in it while it waited"
  if (told.oomKilled || facts?.oomKilled === true) return "it ran out of memory while it waited"
  return facts?.processesRefused === true ? "it ran out of processes while it waited" : undefined
}

const requireUntroubled = (troubled: () => string | undefined) =>
  Effect.suspend(() => {
    const why = troubled()
    return why === undefined ? Effect.void : Effect.fail(unusable(why))
  })

const exitOf = (
  state: Parameters<typeof Deadline.hasPassed>[0] & Pick<DockerApi.Inspected["State"], "OOMKilled">,
  { sinceMillis, spec }: Asked,
  {
    kernel,
    told
  }: { readonly told: { readonly oomKilled: boolean }; readonly kernel: KernelFacts.KernelWatch | undefined }
): ContainerExit => {
  const facts = kernel?.facts()
  const oomKilled = state.OOMKilled || told.oomKilled || facts?.oomKilled === true
  const processesRefused = facts?.processesRefused === true
  return {
    exitCode: state.ExitCode,
    oomKilled,
    processesRefused,
    ...(Deadline.hasPassed(state, spec, sinceMillis) ? { deadlinePassed: true } : {}),
    // The kernel kills and refuses only at the limit, so the limit was the peak even if no sample saw it.
    peak: {
      ...facts?.peak,
      ...(oomKilled ? { memoryBytes: spec.limits.memoryBytesMax } : {}),
      ...(processesRefused ? { processes: spec.limits.processesMax } : {})
    }
  }
}

/** Pauses a container while an effect runs. One that others have paused stays so. */
const paused = <A, E>(api: Engine["api"], id: string, effect: Effect.Effect<A, E>) => {
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
  const whilePaused = Effect.acquireUseRelease(
    outOf("running", api.pause(id)),
    () => effect,
    () => outOf("paused", api.unpause(id))
  )
  return Effect.flatMap(api.inspect(id), (found) => (found?.State.Status === "paused" ? effect : whilePaused))
}

/** Checks the configuration that the engine reports: the only witness for a container that is not an agent's. */
const verifyConfiguration = (
  inspected: DockerApi.Inspected | undefined,
  hostConfig: Hardening.HostConfig
): Effect.Effect<void, PostureMismatch> =>
  Witnesses.noneOf(EngineConfiguration.make({ isWaiting: false }).of(inspected, hostConfig).mismatches)

/** The error of a container without a supervisor, which runs a single program. */
const unsupervised = new ContainerFailed({
  operation: "exec",
  detail: "the container does not accept commands",
  remedy: "Set `supervised: true` in its ContainerSpec"
})

const refuse = () => Effect.fail(unsupervised)

/** Commands of a supervised container, with the variables of its run. */
const commandsOf = (
  supervisor: Effect.Success<ReturnType<typeof Supervisor.make>>,
  spec: () => ContainerSpec
): Pick<Container, "exec" | "files"> => ({
  exec: (command) =>
    supervisor.exec({ ...command, env: { ...ContainerEnvironment.ofAgent(spec()), ...command.env } }),
  // Without the caller's variables, which could change what the file program reports.
  files: ContainerFiles.make(supervisor)
})

const takesNoCommands: Pick<Container, "exec" | "files"> = {
  exec: refuse,
  files: { read: refuse, write: refuse, list: refuse, stat: refuse, remove: refuse }
}
