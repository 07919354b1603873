/**
 * An MCP server that is a program of this host, on its standard input and output.
 *
 * It gets exactly the environment that is passed, and a process group of its own, which ends with the scope: first its
 * input closes, as the protocol says, and after a moment it is killed. It also ends by itself if this host is killed,
 * if it obeys the end of its input.
 *
 * All runs share one process. So what a run can make it write must not end it: beyond a limit it is read more slowly.
 */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import * as ByteLines from "@cogni/sandbox-loop/ByteLines"
import type { ExplainedTransport } from "@cogni/sandbox-loop/McpClient"
import { Clock, Duration, Effect, Option, Queue, Schema, type Scope } from "effect"
import type { Readable } from "node:stream"

interface McpProgram {
  readonly command: string
  readonly argv: ReadonlyArray<string>
  /** The complete environment. */
  readonly env: Readonly<Record<string, string>>
}

/** Limits of one process. */
export const limits = {
  /** Longest message, in bytes. */
  messageBytesMax: 4 * 1024 * 1024,
  /** Output that is no message, in bytes. */
  noiseBytesMax: 1024 * 1024,
  /**
   * Output that is read in a minute, in bytes: reading it takes time of the whole host. A process that has written
   * little may write as much at once.
   */
  bytesPerMinuteMax: 64 * 1024 * 1024,
  /** Messages that the process has not read yet, in bytes. */
  unreadBytesMax: 8 * 1024 * 1024
} as const

/** How long a process may take to end once its input has closed. */
const endSecondsMax = 2

/** Output of one second at the pace of the limit is read in one go. A long pause would make calls fail. */
const pauseMillisMin = 1000

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown)))

/** Starts the program now. */
export const start = Effect.fnUntraced(function* ({
  argv,
  command,
  env
}: McpProgram): Effect.fn.Return<ExplainedTransport, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  let why: string | undefined
  let isOver = false
  let noiseBytes = 0
  const split = ByteLines.splitter(limits.messageBytesMax)
  const over = (because: string) => {
    if (isOver) return
    isOver = true
    why = because
    transport.onclose?.()
  }
  const pace = makePace(clock)
  const pauses = yield* Queue.unbounded<number>()
  let paused: Pick<Readable, "resume"> | undefined
  const goOn = Effect.sync(() => paused?.resume())
  const take = (line: string) => {
    const message = messageOf(line)
    if (message !== undefined) return transport.onmessage?.(message as never)
    noiseBytes += Buffer.byteLength(line) + 1
    if (noiseBytes > limits.noiseBytesMax)
      over(`wrote more than ${limits.noiseBytesMax} bytes that are no messages`)
  }
  const { answer, stdin } = yield* HostProgram.start({
    name: command,
    argv,
    env,
    onStdout: (piece, stdout) => {
      if (isOver) return
      const millis = pace(piece.byteLength)
      if (millis > 0) {
        paused = stdout.pause()
        Queue.offerUnsafe(pauses, millis)
      }
      for (const line of split(piece)) {
        if (line === undefined) over(`sent a message of more than ${limits.messageBytesMax} bytes`)
        else if (!isOver) take(line)
      }
    }
  })
  yield* Queue.take(pauses).pipe(
    Effect.flatMap((millis) => Effect.sleep(Duration.millis(millis))),
    Effect.andThen(goOn),
    Effect.forever,
    Effect.forkScoped
  )
  const settled = Effect.exit(answer)
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      isOver = true
      stdin.end()
      // One that waits until its output is read would not see the end of its input.
      return Effect.andThen(goOn, Effect.timeoutOption(settled, Duration.seconds(endSecondsMax)))
    })
  )
  yield* Effect.forkScoped(
    Effect.map(settled, (exit) =>
      over(
        exit._tag === "Success" ? `has ended with the exit code ${exit.value.exitCode}` : "cannot be started"
      )
    )
  )
  const transport: ExplainedTransport = {
    start: () => (isOver ? Promise.reject(new Error("the process has ended")) : Promise.resolve()),
    send: (message) => {
      if (isOver) return Promise.reject(new Error("the process has ended"))
      if (stdin.writableLength > limits.unreadBytesMax) {
        over("does not read its input")
        return Promise.reject(new Error("the process does not read"))
      }
      stdin.write(`${JSON.stringify(message)}\n`)
      return Promise.resolve()
    },
    close: () => Promise.resolve(over("was closed")),
    why: () => why
  }
  return transport
})

/** Returns a function that counts bytes, and returns how long to read nothing more, in milliseconds. */
const makePace = (clock: Clock.Clock) => {
  const bytesPerMilli = limits.bytesPerMinuteMax / 60_000
  let bytesLeft: number = limits.bytesPerMinuteMax
  let at = clock.currentTimeMillisUnsafe()
  return (byteLength: number): number => {
    const now = clock.currentTimeMillisUnsafe()
    bytesLeft =
      Math.min(limits.bytesPerMinuteMax, bytesLeft + Math.max(0, now - at) * bytesPerMilli) - byteLength
    at = now
    return bytesLeft >= 0 ? 0 : Math.ceil(-bytesLeft / bytesPerMilli) + pauseMillisMin
  }
}

/** Returns a message of the protocol, or `undefined` for anything else. */
const messageOf = (line: string): Readonly<Record<string, unknown>> | undefined => {
  if (line.trim() === "" || JsonSurvey.problemOf(new TextEncoder().encode(line)) !== undefined)
    return undefined
  const message = Option.getOrUndefined(parse(line))
  return message?.["jsonrpc"] === "2.0" ? message : undefined
}
