/**
 * The host's end of a supervised container: commands go in, what is told of each comes out.
 *
 * One fiber hears the supervisor and never waits for anybody who reads: a command is only ever as far ahead of its
 * reader as its window, which is given back as it reads.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { ContainerError, Exec, ExecExit, ExecSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { type SignalName, stdinBytesMax } from "@cogni/sandbox-core/Executor"
import { CommandRefused, ContainerFailed } from "@cogni/sandbox-core/SandboxError"
import { argumentsBytesMax } from "@cogni/sandbox-core/SandboxSpec"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { type Cause, Deferred, Duration, Effect, Option, Queue, type Scope, Stream } from "effect"
import { constants } from "node:os"
import * as SupervisorFrame from "./SupervisorFrame.ts"

/** How long what is killed may take to be gone. */
export const killSecondsMax = 5

/** How long the supervisor may take to read what it is sent; less than what waits for it in pipes is taken at once. */
const readSecondsMax = 5

/** How many commands may run at one time in one sandbox. */
export const commandsConcurrentMax = 64

/** Credit is given back by at least this much at a time. */
const creditBytesMin = SupervisorFrame.windowBytes / 4

interface Running {
  readonly spec: ExecSpec
  readonly output: Queue.Queue<OutputChunk, Cause.Done | ContainerError>
  readonly exit: Deferred.Deferred<ExecExit, ContainerError | CommandRefused>
  /** What was sent counts for, and was not given back: beyond the window is no supervisor of ours. */
  ahead: number
  unacknowledged: number
  /** What is left of it when it has ended was then not left on purpose. */
  isToldToEnd: boolean
}

export interface Supervisor {
  readonly exec: (spec: ExecSpec) => Effect.Effect<Exec, ContainerError | CommandRefused, Scope.Scope>
}

const over = new ContainerFailed({
  operation: "exec",
  detail: "the sandbox has ended",
  remedy: "Open another; see what ended its first process"
})

const babble = (thrown: unknown) =>
  new ContainerFailed({
    operation: "exec",
    detail: `the sandbox's supervisor said ${messageOf(thrown)}`,
    remedy: "Check that the image is built FROM the runtime image of this version (images/README.md)"
  })

const deaf = new ContainerFailed({
  operation: "exec",
  detail: `the sandbox's supervisor has not read what it was sent within ${readSecondsMax} s`,
  remedy: "Something inside may have stopped it: end the sandbox, and open another"
})

const tooMany = new CommandRefused({
  detail: `${commandsConcurrentMax} commands run in this sandbox already`,
  remedy: "Wait for one to end, or end one"
})

const tooMuchInput = new CommandRefused({
  detail: `the commands of this sandbox have more than ${stdinBytesMax} bytes of input together`,
  remedy: "Wait for one to end, or put the input into a file"
})

const tooLong = new CommandRefused({
  detail: `its arguments and its environment have more than ${argumentsBytesMax} bytes together`,
  remedy: "Put long text into a file of the workspace, or send it on stdin"
})

const refused = (why: string, spec: ExecSpec) =>
  new CommandRefused({
    detail: `in ${spec.workingDirectory ?? Workspace.target}: ${why.toLowerCase()}`,
    remedy: "See that the working directory exists, and that the sandbox has processes and files left"
  })

/** Of several names for one number, the first: SIGABRT, not SIGIOT. */
const signalNames = new Map(
  Object.entries(constants.signals)
    .toReversed()
    .map(([name, number]) => [number, name])
)

const numberOf = (name: SignalName): number => constants.signals[name]

const killed: ExecExit = {
  exitCode: 128 + constants.signals.SIGKILL,
  signal: "SIGKILL",
  oomKilled: false,
  processesRefused: false
}

const tellToEnd: ReadonlySet<SignalName> = new Set(["SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM"])

const inputBytesOf = ({ stdin }: ExecSpec): number => stdin?.byteLength ?? 0

export const make = Effect.fnUntraced(function* (channel: {
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  readonly write: (bytes: Uint8Array) => Effect.Effect<void>
  /** Called on what is no word of a supervisor's: nothing more is to be believed. */
  readonly hangUp: Effect.Effect<void>
}): Effect.fn.Return<Supervisor, never, Scope.Scope> {
  const commands = new Map<number, Running>()
  /** Being killed, whether their end has been told or is yet to come. */
  const leaving = new Map<number, Deferred.Deferred<void>>()
  let ended: ContainerError | undefined
  /** A command that it was sent waits for it here, and nothing has come from it since. */
  let isDeaf = false
  let lastId = 0

  const finish = (
    id: number,
    running: Running,
    exit: Effect.Effect<ExecExit, ContainerError | CommandRefused>
  ) =>
    Effect.suspend(() => {
      // Whoever waits goes on at once, and finds nothing left to kill.
      commands.delete(id)
      return Effect.andThen(Queue.end(running.output), Deferred.complete(running.exit, exit))
    })

  const hear = ({ id, told }: SupervisorFrame.Frame): Effect.Effect<unknown, ContainerError> => {
    isDeaf = false
    if (told._tag === "Gone") {
      const gone = leaving.get(id)
      return gone === undefined ? Effect.void : Deferred.succeed(gone, undefined)
    }
    const running = commands.get(id)
    // The last words of what was cut off, or of children that a command has left.
    if (running === undefined) return Effect.void
    switch (told._tag) {
      case "Output":
        // The last one that the window has room for may count for more than is left of it.
        if (running.ahead >= SupervisorFrame.windowBytes) {
          return Effect.fail(babble(new Error("more than it may")))
        }
        running.ahead += SupervisorFrame.costOf(told.bytes)
        return Queue.offer(running.output, { channel: told.channel, bytes: told.bytes })
      case "Exited": {
        const { exitCode, oomKilled, processesRefused } = told
        const signal = signalNames.get(told.signal)
        return finish(
          id,
          running,
          Effect.succeed({
            exitCode,
            oomKilled,
            processesRefused,
            ...(signal === undefined ? {} : { signal })
          })
        )
      }
      case "Refused":
        return finish(id, running, Effect.fail(refused(told.why, running.spec)))
    }
  }

  const end = (why: ContainerError) =>
    Effect.suspend(() => {
      ended = why
      const left = [...commands.values()]
      commands.clear()
      return Effect.andThen(
        Effect.forEach(
          left,
          ({ exit, output }) => Effect.andThen(Queue.fail(output, why), Deferred.fail(exit, why)),
          { discard: true }
        ),
        Effect.forEach([...leaving.values()], (gone) => Deferred.succeed(gone, undefined), { discard: true })
      )
    })

  const decoder = SupervisorFrame.makeDecoder()
  yield* channel.output.pipe(
    Stream.runForEach((chunk) =>
      chunk.channel === "stderr"
        ? Effect.logDebug("the supervisor of a sandbox", new TextDecoder().decode(chunk.bytes).slice(0, 1000))
        : Effect.try({ try: () => decoder.push(chunk.bytes), catch: babble }).pipe(
            Effect.flatMap((frames) => Effect.forEach(frames, hear, { discard: true }))
          )
    ),
    Effect.match({ onFailure: (error) => error, onSuccess: () => over }),
    Effect.flatMap(end),
    // Whoever waits in a sandbox that somebody else closes hears of it too.
    Effect.onInterrupt(() => end(over)),
    Effect.andThen(channel.hangUp),
    // One that is interrupted before it has begun would end nobody.
    Effect.forkScoped({ startImmediately: true })
  )

  const say = (bytes: Uint8Array): Effect.Effect<void, ContainerError> =>
    channel
      .write(bytes)
      .pipe(
        Effect.timeoutOrElse({ duration: Duration.seconds(readSecondsMax), orElse: () => Effect.fail(deaf) })
      )

  /** What still runs of a command that was cut off. */
  const release = (id: number, running: Running) =>
    Effect.gen(function* () {
      // One that has ended by a signal may have children that did not.
      if (ended !== undefined || !(commands.has(id) || running.isToldToEnd)) return
      const gone = yield* Deferred.make<void>()
      leaving.set(id, gone)
      const found = yield* Effect.andThen(channel.write(SupervisorFrame.kill(id)), Deferred.await(gone)).pipe(
        // A finalizer is not interrupted, and so could not be timed out either.
        Effect.interruptible,
        Effect.timeoutOption(Duration.seconds(killSecondsMax))
      )
      if (Option.isNone(found)) {
        yield* Effect.logWarning(`a command was not gone ${killSecondsMax} s after it was killed`)
      }
      leaving.delete(id)
      // Whoever has it from elsewhere waits for its end too.
      yield* finish(id, running, Effect.succeed(killed))
    })

  const acknowledge = (id: number, running: Running, bytes: number) =>
    Effect.suspend(() => {
      running.unacknowledged += bytes
      if (running.unacknowledged < creditBytesMin || !commands.has(id)) return Effect.void
      const given = running.unacknowledged
      running.unacknowledged = 0
      running.ahead -= given
      return channel.write(SupervisorFrame.credit(id, given))
    })

  const inputBytes = () => [...commands.values()].reduce((sum, { spec }) => sum + inputBytesOf(spec), 0)

  return {
    exec: (spec) =>
      Effect.gen(function* () {
        if (ended !== undefined) return yield* Effect.fail(ended)
        // Once it has read so far, it says of that one that it is gone; more would only pile up here.
        if (isDeaf) return yield* Effect.fail(deaf)
        if (commands.size >= commandsConcurrentMax) return yield* tooMany
        // What is not read yet lies in the supervisor, in the sandbox's own memory.
        if (inputBytes() + inputBytesOf(spec) > stdinBytesMax) return yield* tooMuchInput
        const id = ++lastId
        const asked = SupervisorFrame.start(id, spec, Workspace.target)
        // The kernel would refuse it, and the supervisor takes no frame that is much longer.
        if (new DataView(asked.buffer).getUint32(0) > argumentsBytesMax) return yield* tooLong
        const running: Running = {
          spec,
          output: yield* Queue.unbounded<OutputChunk, Cause.Done | ContainerError>(),
          exit: yield* Deferred.make<ExecExit, ContainerError | CommandRefused>(),
          ahead: 0,
          unacknowledged: 0,
          isToldToEnd: false
        }
        yield* Effect.acquireRelease(
          Effect.sync(() => commands.set(id, running)),
          () => release(id, running)
        )
        yield* Effect.tapError(say(asked), () =>
          Effect.sync(() => {
            isDeaf = true
          })
        )
        return {
          output: Stream.fromQueue(running.output).pipe(
            Stream.tap(({ bytes }) => acknowledge(id, running, SupervisorFrame.costOf(bytes)))
          ),
          exit: Deferred.await(running.exit),
          signal: (name) =>
            Effect.suspend(() => {
              if (!commands.has(id)) return Effect.void
              running.isToldToEnd ||= tellToEnd.has(name)
              return say(SupervisorFrame.signal(id, numberOf(name)))
            })
        } satisfies Exec
      })
  }
})
