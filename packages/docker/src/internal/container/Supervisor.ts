/**
 * Client of the supervisor in a supervised container: sends commands, and receives their output and exits.
 *
 * One fiber reads the supervisor's frames and never waits for a reader of output. Flow control is per command and
 * direction: unread output and unread streamed input are limited to a window each, and reading returns credit.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { ContainerError, Exec, ExecExit, ExecSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { type SignalName } from "@cogni/sandbox-core/ExecutorValues"
import { stdinBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import { CommandRefused, ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { argumentsBytesMax } from "@cogni/sandbox-core/SpecFields"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { type Cause, Deferred, Duration, Effect, Option, Queue, Scope, Stream } from "effect"
import { constants } from "node:os"
import * as InputWindow from "./InputWindow.ts"
import * as SupervisorFrame from "./SupervisorFrame.ts"

/** Seconds to wait until a killed command and its children have ended. */
export const killSecondsMax = 5

/** Seconds that the supervisor may take to read a command. A pipe accepts immediately as much as fits into it. */
const readSecondsMax = 5

/** Seconds that the supervisor may take to accept a stream as input. One of an older image never does. */
const streamSecondsMax = 30

/** Maximum number of concurrent commands in a sandbox. */
export const commandsConcurrentMax = 64

/** Minimum number of bytes in a credit frame. */
const creditBytesMin = SupervisorFrame.windowBytes / 4

interface Running {
  readonly spec: ExecSpec
  readonly output: Queue.Queue<OutputChunk, Cause.Done | ContainerError>
  readonly exit: Deferred.Deferred<ExecExit, ContainerError | CommandRefused>
  /** Present if the input is a stream. */
  readonly input: InputWindow.InputWindow | undefined
  /** Cost of the received output for which no credit was returned. Our supervisor never exceeds the window. */
  ahead: number
  unacknowledged: number
  /** Whether a signal has asked the command to end. Its remaining children are then killed. */
  isToldToEnd: boolean
}

export interface Supervisor {
  readonly exec: (spec: ExecSpec) => Effect.Effect<Exec, ContainerError | CommandRefused, Scope.Scope>
}

const over = new ContainerFailed({
  operation: "exec",
  detail: "the sandbox has ended",
  remedy: "Open another sandbox, and check what ended its first process"
})

const babble = (thrown: unknown) =>
  new ContainerFailed({
    operation: "exec",
    detail: `the sandbox's supervisor violated the protocol: ${messageOf(thrown)}`,
    remedy:
      "Check that the image is built FROM the runtime image of this version (README of @cogni/sandbox-images)"
  })

const deaf = new ContainerFailed({
  operation: "exec",
  detail: `the sandbox's supervisor did not read a command within ${readSecondsMax} s`,
  remedy: "A process inside may have stopped it: close the sandbox, and open another"
})

const cannotStream = new ContainerFailed({
  operation: "exec",
  detail: `the sandbox's supervisor did not accept a stream as standard input within ${streamSecondsMax} s`,
  remedy:
    "Check that the image is built FROM the runtime image of this version (README of @cogni/sandbox-images), or give the input as bytes"
})

const tooMany = new CommandRefused({
  detail: `${commandsConcurrentMax} commands are already running in this sandbox`,
  remedy: "Wait until one ends, or end one"
})

const tooMuchInput = new CommandRefused({
  detail: `the running commands of this sandbox have more than ${stdinBytesMax} bytes of input in total`,
  remedy: "Wait until one ends, or put the input into a file"
})

const tooLong = new CommandRefused({
  detail: `its arguments and environment have more than ${argumentsBytesMax} bytes in total`,
  remedy: "Put long text into a file of the workspace, or send it on stdin"
})

const refused = (why: string, spec: ExecSpec) =>
  new CommandRefused({
    detail: `in ${spec.workingDirectory ?? SandboxPlace.target}: ${why.toLowerCase()}`,
    remedy: "Check that the working directory exists, and that the sandbox can open more processes and files"
  })

/** Signal names by number. For a number with several names, the first: SIGABRT, not SIGIOT. */
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

/** Maximum input that the supervisor buffers for a command. */
const inputBytesOf = ({ stdin }: ExecSpec): number =>
  Stream.isStream(stdin) ? SupervisorFrame.windowBytes : (stdin?.byteLength ?? 0)

export const make = Effect.fnUntraced(function* (channel: {
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  readonly write: (bytes: Uint8Array) => Effect.Effect<void>
  /** Closes the channel. Called on a protocol violation, and when the channel's output has ended. */
  readonly hangUp: Effect.Effect<void>
}): Effect.fn.Return<Supervisor, never, Scope.Scope> {
  const commands = new Map<number, Running>()
  /** Commands that are being killed, with or without a reported exit. */
  const leaving = new Map<number, Deferred.Deferred<void>>()
  let ended: ContainerError | undefined
  /** Whether the last command was not read in time, and no frame has arrived since. */
  let isDeaf = false
  let lastId = 0

  const finish = (
    id: number,
    running: Running,
    exit: Effect.Effect<ExecExit, ContainerError | CommandRefused>
  ) =>
    Effect.suspend(() => {
      // Deleted first: a waiting caller continues immediately, and its finalizer must find nothing to kill.
      commands.delete(id)
      return Effect.all(
        // Last, because it interrupts the fiber that feeds the input, which can be this one.
        [
          Queue.end(running.output),
          Deferred.complete(running.exit, exit),
          running.input?.close ?? Effect.void
        ],
        { discard: true }
      )
    })

  const hear = ({ id, told }: SupervisorFrame.Frame): Effect.Effect<unknown, ContainerError> => {
    isDeaf = false
    if (told._tag === "Gone") {
      const gone = leaving.get(id)
      return gone === undefined ? Effect.void : Deferred.succeed(gone, undefined)
    }
    const running = commands.get(id)
    // Late output of a killed command, or of children that a command left behind.
    if (running === undefined) return Effect.void
    switch (told._tag) {
      case "Output":
        // The last frame may cost more than what is left of the window.
        if (running.ahead >= SupervisorFrame.windowBytes) {
          return Effect.fail(babble(new Error("more output than the window allows")))
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
      case "InputAccepted":
        return running.input?.grant(told.bytes) === true
          ? Effect.void
          : Effect.fail(babble(new Error("more input credit than the window allows")))
      case "InputOver":
        return running.input?.close ?? Effect.void
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
          ({ exit, input, output }) =>
            Effect.all([Queue.fail(output, why), Deferred.fail(exit, why), input?.close ?? Effect.void], {
              discard: true
            }),
          { discard: true }
        ),
        Effect.forEach([...leaving.values()], (gone) => Deferred.succeed(gone, undefined), { discard: true })
      )
    })

  const decoder = SupervisorFrame.makeDecoder()
  yield* channel.output.pipe(
    Stream.runForEach((chunk) =>
      chunk.channel === "stderr"
        ? Effect.logDebug("supervisor stderr", new TextDecoder().decode(chunk.bytes).slice(0, 1000))
        : Effect.try({ try: () => decoder.push(chunk.bytes), catch: babble }).pipe(
            Effect.flatMap((frames) => Effect.forEach(frames, hear, { discard: true }))
          )
    ),
    Effect.match({ onFailure: (error) => error, onSuccess: () => over }),
    Effect.flatMap(end),
    // If another fiber closes the sandbox, waiting callers must fail too.
    Effect.onInterrupt(() => end(over)),
    Effect.andThen(channel.hangUp),
    // A fiber that is interrupted before it starts would not run `end`.
    Effect.forkScoped({ startImmediately: true })
  )

  const say = (bytes: Uint8Array): Effect.Effect<void, ContainerError> =>
    channel
      .write(bytes)
      .pipe(
        Effect.timeoutOrElse({ duration: Duration.seconds(readSecondsMax), orElse: () => Effect.fail(deaf) })
      )

  /** Kills what still runs of a command, and waits until it has ended. */
  const release = (id: number, running: Running) =>
    Effect.gen(function* () {
      // A command that a signal ended may have left children that still run.
      if (ended !== undefined || !(commands.has(id) || running.isToldToEnd)) return
      const gone = yield* Deferred.make<void>()
      leaving.set(id, gone)
      const found = yield* Effect.andThen(channel.write(SupervisorFrame.kill(id)), Deferred.await(gone)).pipe(
        // A finalizer is uninterruptible, and a timeout needs to interrupt it.
        Effect.interruptible,
        Effect.timeoutOption(Duration.seconds(killSecondsMax))
      )
      if (Option.isNone(found)) {
        yield* Effect.logWarning(`a command still ran ${killSecondsMax} s after it was killed`)
      }
      leaving.delete(id)
      // Another fiber may be waiting for its exit.
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

  /** Sends a stream as far as the supervisor accepts it, until the stream or the command's input ends. */
  const feed = (
    id: number,
    window: InputWindow.InputWindow,
    running: Running,
    input: Stream.Stream<Uint8Array>
  ) =>
    Effect.gen(function* () {
      const accepted = yield* Effect.timeoutOption(window.opened, Duration.seconds(streamSecondsMax))
      if (Option.isNone(accepted)) {
        running.isToldToEnd = true
        yield* channel.write(SupervisorFrame.kill(id))
        return yield* finish(id, running, Effect.fail(cannotStream))
      }
      yield* Stream.runForEach(input, (bytes) =>
        Effect.forEach(
          SupervisorFrame.inputPieces(bytes),
          (piece) =>
            Effect.andThen(window.spend(piece.byteLength), channel.write(SupervisorFrame.input(id, piece))),
          { discard: true }
        )
      )
      yield* channel.write(SupervisorFrame.inputEnd(id))
    }).pipe(Effect.raceFirst(window.closed))

  const inputBytes = () => [...commands.values()].reduce((sum, { spec }) => sum + inputBytesOf(spec), 0)

  return {
    exec: (spec) =>
      Effect.gen(function* () {
        if (ended !== undefined) return yield* Effect.fail(ended)
        // Refuse until the supervisor reports the unread command as gone: more commands would only pile up here.
        if (isDeaf) return yield* Effect.fail(deaf)
        if (commands.size >= commandsConcurrentMax) return yield* tooMany
        // The supervisor buffers unread input in the sandbox's memory.
        if (inputBytes() + inputBytesOf(spec) > stdinBytesMax) return yield* tooMuchInput
        const id = ++lastId
        const asked = SupervisorFrame.start(id, spec, SandboxPlace.target)
        // The kernel would refuse it, and the supervisor accepts no frame that is much longer.
        if (new DataView(asked.buffer).getUint32(0) > argumentsBytesMax) return yield* tooLong
        const running: Running = {
          spec,
          output: yield* Queue.unbounded<OutputChunk, Cause.Done | ContainerError>(),
          exit: yield* Deferred.make<ExecExit, ContainerError | CommandRefused>(),
          input: Stream.isStream(spec.stdin) ? InputWindow.make() : undefined,
          ahead: 0,
          unacknowledged: 0,
          isToldToEnd: false
        }
        // Closed after the release below, because it is older: no finalizer of the stream delays the kill.
        const feeding = yield* Scope.fork(yield* Effect.scope)
        yield* Effect.acquireRelease(
          Effect.sync(() => commands.set(id, running)),
          () => release(id, running)
        )
        yield* Effect.tapError(say(asked), () =>
          Effect.sync(() => {
            isDeaf = true
          })
        )
        if (running.input !== undefined && Stream.isStream(spec.stdin)) {
          yield* Effect.forkIn(feed(id, running.input, running, spec.stdin), feeding)
        }
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
