/**
 * An MCP server that is a program of this host, on its standard input and output.
 *
 * It gets exactly the environment that is passed, and a process group of its own, which ends with the scope: first its
 * input closes, as the protocol says, and after a moment it is killed. It also ends by itself if this host is killed,
 * if it obeys the end of its input.
 */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import * as ByteLines from "@cogni/sandbox-loop/ByteLines"
import type { ExplainedTransport } from "@cogni/sandbox-loop/McpClient"
import { Clock, Duration, Effect, Option, Schema, type Scope } from "effect"

export interface McpProgram {
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
  /** Everything that it writes in a minute, in bytes: reading it takes time of the whole host. */
  bytesPerMinuteMax: 64 * 1024 * 1024,
  /** Messages that the process has not read yet, in bytes. */
  unreadBytesMax: 8 * 1024 * 1024
} as const

/** How long a process may take to end once its input has closed. */
const endSecondsMax = 2

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
  let since = clock.currentTimeMillisUnsafe()
  let minuteBytes = 0
  const count = ({ byteLength }: Uint8Array) => {
    const now = clock.currentTimeMillisUnsafe()
    if (now - since >= 60_000) {
      since = now
      minuteBytes = 0
    }
    minuteBytes += byteLength
    if (minuteBytes > limits.bytesPerMinuteMax)
      over(`wrote more than ${limits.bytesPerMinuteMax} bytes in a minute`)
  }
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
    onStdout: (piece) => {
      if (isOver) return
      count(piece)
      for (const line of split(piece)) {
        if (line === undefined) over(`sent a message of more than ${limits.messageBytesMax} bytes`)
        else if (!isOver) take(line)
      }
    }
  })
  const settled = Effect.exit(answer)
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      isOver = true
      stdin.end()
      return Effect.timeoutOption(settled, Duration.seconds(endSecondsMax))
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

/** Returns a message of the protocol, or `undefined` for anything else. */
const messageOf = (line: string): Readonly<Record<string, unknown>> | undefined => {
  if (line.trim() === "" || JsonSurvey.problemOf(new TextEncoder().encode(line)) !== undefined)
    return undefined
  const message = Option.getOrUndefined(parse(line))
  return message?.["jsonrpc"] === "2.0" ? message : undefined
}
