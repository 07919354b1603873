/**
 * The attach stream of a container, split into the messages of its entrypoint and the output of its agent.
 *
 * One fiber reads while the surrounding scope is open, with back-pressure from the reader of `output`.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { ContainerFailed, ProxyFailed, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { loadSecondsMax } from "@cogni/sandbox-core/WaitingSandbox"
import { type Cause, Deferred, Duration, Effect, Queue, Stream } from "effect"
import type { Duplex } from "node:stream"
import * as EndMark from "../container/EndMark.ts"
import * as Handshake from "../container/Handshake.ts"
import { reportBytesMax } from "../container/PostureReport.ts"
import * as LogStream from "./LogStream.ts"

/** Timeout in seconds of a held container's report, and of the agent's start after `go`. */
const reportSecondsMax = 30

/** Timeout in seconds of the report after a claim. A run that gets none starts cold. */
const claimSecondsMax = 5

const brokenStream = (thrown: unknown) =>
  new RuntimeUnavailable({
    detail: `interrupted the output of a container (${messageOf(thrown)})`,
    remedy: "It was stopped or has crashed: read its log, then start it and try again"
  })

/**
 * Reads an attach stream until it ends, with back-pressure on the container. It is a loop and no `Stream`, because a
 * run waits for each of the first chunks.
 */
export const eachChunk = Effect.fnUntraced(function* (
  socket: Duplex,
  take: (chunk: OutputChunk) => Effect.Effect<unknown>
) {
  const demultiplexer = LogStream.make()
  const pieces = (socket as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]()
  for (;;) {
    const piece = yield* Effect.tryPromise({ try: () => pieces.next(), catch: brokenStream })
    if (piece.done === true) return
    for (const chunk of demultiplexer.push(piece.value)) yield* take(chunk)
  }
})

const write = (socket: Duplex, bytes: Uint8Array | string): Effect.Effect<void> =>
  Effect.callback((resume) => {
    // Writing to a container that has ended is not an error here: its exit reports the end.
    if (socket.destroyed) return resume(Effect.void)
    socket.write(bytes, () => resume(Effect.void))
  })

const failed = (detail: string) =>
  new ContainerFailed({
    operation: "entrypoint",
    detail,
    remedy: "Check that the image is built FROM the runtime image (README of @cogni/sandbox-images)"
  })

const inTime = <A, E>(effect: Effect.Effect<A, E>, what: string, secondsMax = reportSecondsMax) =>
  effect.pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(secondsMax),
      orElse: () => Effect.fail(failed(`the sandbox did not ${what} within ${secondsMax} s`))
    })
  )

interface Opening {
  readonly socket: Duplex
  readonly held: boolean
  /** Whether the container waits for a run, and must write nothing but its reports until then. */
  readonly isWaiting: boolean
  /** Called after the last byte of output: the container's control group is about to be removed. */
  readonly onEnd: () => void
}

export const make = Effect.fnUntraced(function* (options: Opening) {
  let reported = yield* Deferred.make<string, ContainerError>()
  const started = yield* Deferred.make<void, ContainerError | ProxyFailed>()
  const output = yield* Queue.bounded<OutputChunk, Cause.Done | ContainerError>(32)
  const ended = yield* Deferred.make<void>()
  const handshake = options.held ? Handshake.make(options) : undefined
  const told = yield* Deferred.make<number>()
  let mark: EndMark.EndMark | undefined
  let hasEnded = false

  const endedEarly = () => {
    const why =
      handshake?.hasFlooded() === true
        ? `it wrote more than ${reportBytesMax} bytes before it had a run`
        : handshake?.pending() || "it wrote nothing"
    return failed(`the sandbox ended before the agent could start: ${why}`)
  }

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
            detail: `the sandbox cannot reach its socket (${said.detail})`,
            remedy: "Read the proxy's log in the run's directory, and check the upstream of the models"
          })
        )
    }
  }

  /** Passes output on, until both streams have ended with the exit code. */
  const pass = (chunk: OutputChunk | undefined): Effect.Effect<unknown> => {
    if (chunk === undefined) return Effect.void
    if (mark === undefined) return Queue.offer(output, chunk)
    const certain = mark.push(chunk)
    const passed = certain === undefined ? Effect.void : Queue.offer(output, certain)
    const exitCode = mark.exitCode()
    if (exitCode === undefined) return passed
    options.onEnd()
    return Effect.andThen(passed, Deferred.succeed(told, exitCode)).pipe(Effect.andThen(Queue.end(output)))
  }

  const take = (chunk: OutputChunk) => {
    if (handshake === undefined) return pass(chunk)
    const { output: rest, said } = handshake.push(chunk)
    if (handshake.hasFlooded()) options.socket.destroy()
    return Effect.andThen(Effect.forEach(said, hear, { discard: true }), pass(rest))
  }

  /** Sends a message to a container that waits, and returns the report that follows. */
  const ask = Effect.fnUntraced(function* (text: string, token: string, what: string, secondsMax: number) {
    handshake?.expectReport()
    if (token !== "") mark = EndMark.make(token)
    reported = yield* Deferred.make<string, ContainerError>()
    // A container that ended while it waited reports nothing more. One that ends from here on fails the report.
    if (hasEnded) return yield* endedEarly()
    const answer = Effect.andThen(write(options.socket, text), Deferred.await(reported))
    return yield* inTime(answer, what, secondsMax)
  })

  return {
    /** Begins to read. Call it before the start, so that no output is missed. */
    listen: eachChunk(options.socket, take).pipe(
      Effect.exit,
      Effect.tap(() => {
        hasEnded = true
        options.onEnd()
        // Output, because it did not become the line with the exit code.
        return Effect.forEach(mark?.rest() ?? [], (chunk) => Queue.offer(output, chunk), { discard: true })
      }),
      Effect.tap((exit) =>
        exit._tag === "Failure" ? Queue.failCause(output, exit.cause) : Queue.end(output)
      ),
      Effect.andThen(Effect.suspend(() => Deferred.fail(reported, endedEarly()))),
      Effect.andThen(Effect.suspend(() => Deferred.fail(started, endedEarly()))),
      Effect.andThen(Deferred.succeed(ended, undefined)),
      Effect.forkScoped,
      Effect.asVoid
    ),
    /** The entrypoint's posture report. */
    report: inTime(
      Effect.suspend(() => Deferred.await(reported)),
      "report its posture"
    ),
    /** Sends the claim of a run, and returns the report that follows. A token ends the output with the exit code. */
    claim: (text: string, token: string) =>
      ask(text, token, "report its posture to its run", claimSecondsMax),
    /** Tells a waiting container which program to load, and returns the report that follows. */
    load: (text: string) => ask(text, "", "load its program", loadSecondsMax),
    /** Whether a container has written what was not expected. Before `go`, only its image or a loaded program can. */
    hasSpoken: () => handshake?.hasSpoken() === true,
    /**
     * Sends `go` to a held container, and waits until its agent has started. Stdin stays open: the first process ends
     * the container when stdin ends, and that happens when this process dies. With a token, the container ends its
     * output with its exit code.
     */
    go: (token: string) =>
      Effect.suspend(() => {
        if (token !== "") mark = EndMark.make(token)
        handshake?.expectStart()
        return Effect.andThen(
          write(options.socket, token === "" ? "go\n" : `go ${token}\n`),
          inTime(Deferred.await(started), "start its agent")
        )
      }),
    /** Writes to stdin and leaves it open. Completes when the bytes are sent. */
    write: (bytes: Uint8Array) => write(options.socket, bytes),
    hangUp: Effect.sync(() => void options.socket.destroy()),
    output: Stream.fromQueue(output),
    /** Completes with the exit code that a container reports itself. All of its output is in `output` then. */
    told: Deferred.await(told),
    /** Whether the stream has ended: the container has ended, or the engine is gone. */
    hasEnded: () => hasEnded,
    /** Completes when the stream has ended and all of it is in `output`. */
    ended: Deferred.await(ended)
  }
})
