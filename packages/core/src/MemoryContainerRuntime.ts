/**
 * Containers in a map: complete, well-behaved, and wrong in the ways the real ones are wrong.
 *
 * For tests, and for trying an agent with nothing installed. What would be the agent is a `Program`.
 */
import { Cause, Deferred, type Duration, Effect, Exit, Fiber, Layer, Queue, Ref, Scope, Stream } from "effect"
import {
  type Container,
  type ContainerExit,
  ContainerRuntime,
  type ContainerSpec,
  type OutputChunk,
  type VolumeSpec
} from "./ContainerRuntime.ts"
import type { Posture } from "./Posture.ts"
import { ContainerFailed, ImageNotFound } from "./SandboxError.ts"

/** What a pretend program sees and can do. @category models */
export interface ProgramIo {
  readonly spec: ContainerSpec
  /** The command: of the container, or of an `exec` in it. */
  readonly argv: ReadonlyArray<string>
  readonly stdout: (output: string | Uint8Array) => Effect.Effect<void>
  readonly stderr: (output: string | Uint8Array) => Effect.Effect<void>
  /** Settles on SIGTERM. A program that does not listen is killed after the grace. */
  readonly terminated: Effect.Effect<void>
}

/** What a pretend program does: its exit code, or a whole exit. @category models */
export type Program = (io: ProgramIo) => Effect.Effect<number | ContainerExit>

/** @category models */
export interface MemoryOptions {
  /** Images that exist; all of them, when left out. */
  readonly images?: ReadonlySet<string> | undefined
  readonly program?: Program | undefined
}

const exitZero: Program = () => Effect.succeed(0)

/** A posture in which nothing is amiss. @category constructors */
export const goodPosture = (spec: ContainerSpec): Posture => ({
  userIds: [spec.user.userId],
  groupIds: [spec.user.groupId],
  capabilities: { inheritable: "0", permitted: "0", effective: "0", bounding: "0", ambient: "0" },
  noNewPrivileges: true,
  seccompMode: 2,
  namespaces: { net: spec.runId },
  interfaces: ["lo"],
  routes: [],
  mounts: [
    { target: "/", fileSystem: "memory", readOnly: true, options: ["ro"] },
    ...spec.mounts.map((mount) => ({
      target: mount.target,
      fileSystem: "memory",
      readOnly: mount.readOnly,
      options: [mount.readOnly ? "ro" : "rw"]
    }))
  ],
  confirmedBy: ["sandbox"]
})

const toExit = (exit: number | ContainerExit): ContainerExit =>
  typeof exit === "number" ? { exitCode: exit, oomKilled: false, processesRefused: false, peak: {} } : exit

/** A program under way: what it writes, how it ends, and how it is ended. */
const execute = Effect.fnUntraced(function* (
  program: Program,
  spec: ContainerSpec,
  argv: ReadonlyArray<string>
) {
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
    stdout: write("stdout"),
    stderr: write("stderr"),
    terminated: Deferred.await(terminated)
  }
  const end = (exit: number | ContainerExit) =>
    Effect.andThen(Deferred.succeed(exited, toExit(exit)), Queue.end(queue)).pipe(Effect.asVoid)
  const fiber = yield* Effect.forkDetach(
    program(io).pipe(
      Effect.onExit((exit) =>
        end(Exit.isSuccess(exit) ? exit.value : Cause.hasInterrupts(exit.cause) ? 137 : 139)
      )
    )
  )
  return {
    output: Stream.fromQueue(queue),
    exit: Deferred.await(exited),
    terminate: Deferred.succeed(terminated, undefined),
    // Its end closes the output after what was already written; a shutdown would look to the reader as an interruption.
    kill: Fiber.interrupt(fiber)
  }
})

/** @category constructors */
export const make = (options: MemoryOptions = {}) =>
  Effect.gen(function* () {
    const resources = yield* Ref.make<ReadonlyMap<string, string>>(new Map())
    const program = options.program ?? exitZero

    const hold = (name: string, runId: string) =>
      Effect.acquireRelease(
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
          )
        ),
        () => Ref.update(resources, (all) => new Map([...all].filter(([key]) => key !== name)))
      )

    const acquire = Effect.fn("ContainerRuntime.acquire")(function* (spec: ContainerSpec) {
      if (options.images?.has(spec.image) === false) return yield* new ImageNotFound({ image: spec.image })
      const id = `memory-${spec.runId}-${spec.role}`
      yield* hold(id, spec.runId)
      const scope = yield* Effect.scope
      const running = yield* Deferred.make<Effect.Success<ReturnType<typeof execute>>>()
      const launch = (argv: ReadonlyArray<string>) =>
        Effect.uninterruptible(
          Effect.tap(execute(program, spec, argv), (process) => Scope.addFinalizer(scope, process.kill))
        )
      const begin = Effect.flatMap(launch(spec.argv), (process) => Deferred.succeed(running, process))

      return {
        id,
        start: spec.role === "agent" ? Effect.succeed(goodPosture(spec)) : Effect.as(begin, undefined),
        proceed: Effect.asVoid(begin),
        output: Stream.unwrap(Effect.map(Deferred.await(running), (process) => process.output)),
        exit: Effect.flatMap(Deferred.await(running), (process) => process.exit),
        // A program of these tests hears nothing.
        send: () => Effect.void,
        stop: (grace: Duration.Duration) =>
          Effect.flatMap(Deferred.await(running), (process) =>
            Effect.andThen(
              process.terminate,
              process.exit.pipe(Effect.timeoutOrElse({ duration: grace, orElse: () => process.kill }))
            )
          ).pipe(Effect.asVoid),
        exec: (execSpec) =>
          Effect.map(launch(execSpec.argv), (process) => ({
            output: process.output,
            exitCode: Effect.map(process.exit, (exit) => exit.exitCode)
          }))
      } satisfies Container
    })

    return ContainerRuntime.of({
      acquire,
      acquireVolume: Effect.fn("ContainerRuntime.acquireVolume")(function* (spec: VolumeSpec) {
        const name = `memory-${spec.runId}-${spec.role}`
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

/** @category layers */
export const layer = (options?: MemoryOptions): Layer.Layer<ContainerRuntime> =>
  Layer.effect(ContainerRuntime, make(options))
