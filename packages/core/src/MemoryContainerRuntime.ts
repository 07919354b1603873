/**
 * Containers in memory, which behave and fail like real ones.
 *
 * For tests, and for trying an agent with nothing installed. A `Program` takes the place of the agent.
 */
import { Cause, Deferred, type Duration, Effect, Exit, Fiber, Layer, Queue, Ref, Scope, Stream } from "effect"
import type { OutputChunk } from "./RunResult.ts"
import {
  type Container,
  type ContainerExit,
  ContainerRuntime,
  type ContainerSpec,
  type ExecSpec
} from "./ContainerRuntime.ts"
import { type VolumeSpec } from "./ContainerMount.ts"
import type { Files } from "./Executor.ts"
import type { SignalName } from "./ExecutorValues.ts"
import * as MemoryFiles from "./internal/MemoryFiles.ts"
import { CommandRefused, ContainerFailed, type FileRefused, ImageNotFound } from "./SandboxReason.ts"
import * as WaitingSandbox from "./WaitingSandbox.ts"
import { target } from "./SandboxPlace.ts"
import { goodPosture } from "./internal/GoodPosture.ts"

/** Input and output of a program in memory. */
export interface ProgramIo {
  readonly spec: ContainerSpec
  /** Command of the container, or of an `exec` in it. */
  readonly argv: ReadonlyArray<string>
  /** The container's environment, and that of the `exec`. */
  readonly env: Readonly<Record<string, string>>
  /** The workspace, unless an `exec` names another. */
  readonly workingDirectory: string
  /** Standard input, for one reader. Empty, unless an `exec` has input. */
  readonly stdin: Stream.Stream<Uint8Array>
  /** Every signal that is sent, except SIGKILL. The program decides which of them end it. */
  readonly signals: Stream.Stream<SignalName>
  /** Files of the workspace, like `Container.files`. */
  readonly files: Files<FileRefused>
  readonly stdout: (output: string | Uint8Array) => Effect.Effect<void>
  readonly stderr: (output: string | Uint8Array) => Effect.Effect<void>
  /** Settles on SIGTERM. A program that ignores it is killed after the grace. */
  readonly terminated: Effect.Effect<void>
}

/** A program in memory. Returns its exit code, or a complete exit. */
export type Program = (io: ProgramIo) => Effect.Effect<number | ContainerExit>

export interface MemoryOptions {
  /** Images that exist. Defaults to all. */
  readonly images?: ReadonlySet<string> | undefined
  readonly program?: Program | undefined
}

const exitZero: Program = () => Effect.succeed(0)

/** Runs until SIGTERM. Commands come from outside. */
const supervisor: Program = ({ terminated }) => Effect.as(terminated, 143)

const signalNumbers: Readonly<Record<number, string>> = {
  129: "SIGHUP",
  130: "SIGINT",
  137: "SIGKILL",
  143: "SIGTERM"
}

/** The signal that an exit code stands for, as in a shell. */
const signalOf = (exitCode: number) => {
  const signal = signalNumbers[exitCode]
  return signal === undefined ? {} : { signal }
}

const toExit = (exit: number | ContainerExit): ContainerExit =>
  typeof exit === "number" ? { exitCode: exit, oomKilled: false, processesRefused: false, peak: {} } : exit

/** Refuses a working directory that does not exist. Directories outside the workspace are not checked. */
const placed = (files: Files<FileRefused>, { workingDirectory = target }: ExecSpec) =>
  files.list(workingDirectory).pipe(
    Effect.catchIf(
      ({ problem }) => problem === "not_found" || problem === "not_a_directory",
      ({ detail, remedy }) =>
        Effect.fail(
          new CommandRefused({
            detail: `its working directory ${JSON.stringify(workingDirectory.slice(0, 200))} ${detail}`,
            remedy
          })
        ),
      () => Effect.void
    )
  )

const inputOf = (stdin: ExecSpec["stdin"]): Stream.Stream<Uint8Array> =>
  Stream.isStream(stdin)
    ? stdin
    : stdin === undefined || stdin.byteLength === 0
      ? Stream.empty
      : Stream.succeed(stdin)

/** Starts a program. Returns its output, its exit, and the means to end it. */
const execute = Effect.fnUntraced(function* (
  program: Program,
  spec: ContainerSpec,
  command: ExecSpec,
  files: Files<FileRefused>
) {
  const { argv, env, stdin, workingDirectory = target } = command
  const signals = yield* Queue.unbounded<SignalName, Cause.Done>()
  const queue = yield* Queue.bounded<OutputChunk, Cause.Done>(16)
  const terminated = yield* Deferred.make<void>()
  const exited = yield* Deferred.make<ContainerExit>()
  const write = (channel: OutputChunk["channel"]) => (output: string | Uint8Array) =>
    Effect.asVoid(
      Queue.offer(queue, {
        channel,
        bytes: typeof output === "string" ? new TextEncoder().encode(output) : output
      })
    )
  const io: ProgramIo = {
    spec,
    argv,
    env: { ...spec.env, ...env },
    workingDirectory,
    stdin: inputOf(stdin),
    signals: Stream.fromQueue(signals),
    files,
    stdout: write("stdout"),
    stderr: write("stderr"),
    terminated: Deferred.await(terminated)
  }
  const end = (exit: number | ContainerExit) =>
    Effect.andThen(Deferred.succeed(exited, toExit(exit)), Queue.end(queue)).pipe(Effect.asVoid)
  // Started at once: a fiber that is interrupted before its first step would never report its exit.
  const fiber = yield* Effect.forkDetach(
    program(io).pipe(
      Effect.onExit((exit) =>
        end(Exit.isSuccess(exit) ? exit.value : Cause.hasInterrupts(exit.cause) ? 137 : 139)
      )
    ),
    { startImmediately: true }
  )
  return {
    output: Stream.fromQueue(queue),
    exit: Deferred.await(exited),
    terminate: Deferred.succeed(terminated, undefined),
    signal: (name: SignalName) =>
      name === "SIGKILL"
        ? Fiber.interrupt(fiber)
        : Effect.andThen(
            Queue.offer(signals, name),
            name === "SIGTERM" ? Deferred.succeed(terminated, undefined) : Effect.void
          ),
    // Interruption closes the output after what was already written. A shutdown would interrupt the reader.
    kill: Fiber.interrupt(fiber)
  }
})

export const make = (options: MemoryOptions = {}): Effect.Effect<ContainerRuntime["Service"]> =>
  Effect.gen(function* () {
    const resources = yield* Ref.make<ReadonlyMap<string, string>>(new Map())
    const program = options.program ?? exitZero
    const trees = new Map<string, MemoryFiles.Tree>()

    /** All containers share a host directory; any other workspace belongs to its container. */
    const filesOf = (spec: ContainerSpec) =>
      Effect.sync(() => {
        const source = spec.mounts.find((mount) => mount.target === target)?.source
        if (source === undefined || source === `/memory/${spec.runId}`) return MemoryFiles.empty()
        const tree = trees.get(source) ?? MemoryFiles.empty()
        trees.set(source, tree)
        return tree
      })

    const claimName = (name: string, runId: string) =>
      Ref.modify(resources, (all): readonly [boolean, ReadonlyMap<string, string>] =>
        all.has(name) ? [false, all] : [true, new Map(all).set(name, runId)]
      ).pipe(
        Effect.filterOrFail(
          (made) => made,
          () =>
            new ContainerFailed({
              operation: "create",
              detail: `the name ${name} is in use`,
              remedy: "Use a fresh run id"
            })
        ),
        Effect.asVoid
      )

    const freeName = (name: string) =>
      Ref.update(resources, (all) => new Map([...all].filter(([key]) => key !== name)))

    const hold = (name: string, runId: string) =>
      Effect.acquireRelease(claimName(name, runId), () => freeName(name))

    const nameOf = ({ role, runId }: Pick<ContainerSpec, "role" | "runId">) => `memory-${runId}-${role}`

    const exists = ({ image }: Pick<ContainerSpec, "image">) =>
      options.images?.has(image) === false ? Effect.fail(new ImageNotFound({ image })) : Effect.void

    const containerOf = Effect.fnUntraced(function* (spec: ContainerSpec, id: string, scope: Scope.Scope) {
      const running = yield* Deferred.make<Effect.Success<ReturnType<typeof execute>>>()
      const files = MemoryFiles.make(yield* filesOf(spec))
      const launch = (command: ExecSpec, within: Scope.Scope, run = program) =>
        Effect.uninterruptible(
          Effect.tap(execute(run, spec, command, files), (process) =>
            Scope.addFinalizer(within, process.kill)
          )
        )
      const first = { argv: spec.argv as ExecSpec["argv"], env: {} }
      const begin = Effect.flatMap(
        launch(first, scope, spec.supervised === true ? supervisor : program),
        (process) => Deferred.succeed(running, process)
      )

      return {
        id,
        start: spec.role === "agent" ? Effect.succeed(goodPosture(spec)) : Effect.as(begin, undefined),
        proceed: Effect.asVoid(begin),
        output: Stream.unwrap(Effect.map(Deferred.await(running), (process) => process.output)),
        exit: Effect.flatMap(Deferred.await(running), (process) => process.exit),
        // A program in memory reads no input after its start.
        send: () => Effect.void,
        stop: (grace: Duration.Duration) =>
          Effect.flatMap(Deferred.await(running), (process) =>
            Effect.andThen(
              process.terminate,
              process.exit.pipe(Effect.timeoutOrElse({ duration: grace, orElse: () => process.kill }))
            )
          ).pipe(Effect.asVoid),
        // There is no process to pause.
        whilePaused: (effect) => effect,
        exec: (command) =>
          Effect.gen(function* () {
            yield* placed(files, command)
            const process = yield* launch(command, yield* Effect.scope)
            return {
              output: process.output,
              exit: Effect.map(process.exit, ({ exitCode, oomKilled, processesRefused }) => ({
                exitCode,
                oomKilled,
                processesRefused,
                ...signalOf(exitCode)
              })),
              signal: (name) => Effect.asVoid(process.signal(name))
            }
          }),
        files
      } satisfies Container
    })

    const acquire = Effect.fn("ContainerRuntime.acquire")(function* (spec: ContainerSpec) {
      yield* exists(spec)
      const id = nameOf(spec)
      yield* hold(id, spec.runId)
      return yield* containerOf(spec, id, yield* Effect.scope)
    })

    const prepare = Effect.fn("ContainerRuntime.prepare")(function* (spec: WaitingSandbox.WaitingSpec) {
      yield* exists(spec)
      let name = nameOf({ runId: spec.waitingId, role: "agent" })
      let isBound = false
      yield* Effect.acquireRelease(claimName(name, spec.waitingId), () =>
        Effect.suspend(() => freeName(name))
      )
      const scope = yield* Effect.scope
      return {
        id: name,
        posture: goodPosture(WaitingSandbox.asContainer(spec)),
        hasEnded: Effect.map(Ref.get(resources), (all) => !all.has(name)),
        unusable: Effect.map(Ref.get(resources), (all) => (all.has(name) ? undefined : "it was removed")),
        bind: (run: ContainerSpec) =>
          Effect.gen(function* () {
            if (isBound) return yield* WaitingSandbox.boundTwice
            isBound = true
            if (!WaitingSandbox.isSamePreload(spec, run)) return yield* WaitingSandbox.otherShape(["preload"])
            const container = yield* containerOf(run, nameOf(run), scope)
            const bound = Effect.flatMap(Ref.get(resources), (all) =>
              all.has(nameOf(run))
                ? Effect.fail(WaitingSandbox.nameInUse(nameOf(run)))
                : Ref.update(resources, (before) => new Map(before).set(name, run.runId))
            )
            const renamed = Effect.uninterruptible(
              Effect.gen(function* () {
                yield* claimName(nameOf(run), run.runId)
                yield* freeName(name)
                name = nameOf(run)
              })
            )
            return {
              ...container,
              start: Effect.andThen(bound, container.start),
              proceed: Effect.andThen(renamed, container.proceed),
              // A program in memory leaves no process behind.
              exit: Effect.map(container.exit, (exit) => ({ ...exit, isEmpty: run.supervised !== true }))
            }
          })
      }
    })

    return ContainerRuntime.of({
      acquire,
      prepare,
      whyUnbound: Effect.undefined,
      acquireVolume: Effect.fn("ContainerRuntime.acquireVolume")(function* (spec: VolumeSpec) {
        const name = `memory-${spec.runId}-${spec.role}${spec.index === undefined ? "" : `-${spec.index}`}`
        yield* hold(name, spec.runId)
        return name
      }),
      sharesHost: Effect.succeed(true),
      leftovers: (runId) =>
        Effect.map(Ref.get(resources), (all) =>
          [...all].filter(([, owner]) => owner === runId).map(([name]) => name)
        )
    })
  })

export const layer = (options?: MemoryOptions): Layer.Layer<ContainerRuntime> =>
  Layer.effect(ContainerRuntime, make(options))
