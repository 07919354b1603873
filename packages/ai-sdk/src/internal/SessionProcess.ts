/** A running command of the sandbox as a process of the AI SDK's session. */
import { killGraceSeconds } from "@cogni/sandbox-core/ExecutorLimits"
import type { Process, Spawn } from "@cogni/sandbox-promise"
import * as ByteStream from "./ByteStream.ts"

/** Output that is kept for a stream that is not read. Then the process waits, as it would for a full pipe. */
export const outputBytesMax = 1024 * 1024

export interface SessionProcess {
  /** Read or cancel both streams: a process waits while one of them is full. */
  readonly stdout: ReadableStream<Uint8Array>
  readonly stderr: ReadableStream<Uint8Array>
  /** Rejects with the reason of the `abortSignal`, after the process was killed. */
  readonly wait: () => Promise<{ readonly exitCode: number }>
  /** Sends SIGTERM, and after two seconds kills what still runs of it, with all its children. Idempotent. */
  readonly kill: () => Promise<void>
}

export interface WritableSessionProcess extends SessionProcess {
  /** Closing it is the end of the input. Aborting it kills the process, because its input is incomplete. */
  readonly stdin: WritableStream<Uint8Array>
}

export const start = async (starting: Promise<Process>): Promise<SessionProcess> => {
  const process = await starting
  const stdout = ByteStream.channel(outputBytesMax)
  const stderr = ByteStream.channel(outputBytesMax)
  const delivered = deliver(process, { stdout, stderr })
  // Only now is nothing of it needed any more. If that fails, closing the sandbox reports it: an unhandled rejection
  // would end the host's process.
  void Promise.allSettled([process.exit, delivered])
    .then(() => process[Symbol.asyncDispose]())
    .catch(() => undefined)
  let killed: Promise<void> | undefined
  return {
    stdout: stdout.stream,
    stderr: stderr.stream,
    wait: async () => ({ exitCode: (await process.exit).exitCode }),
    kill: () => (killed ??= end(process))
  }
}

/** Starts a process with the other end of a writable stream. */
export const startWritable = async (
  spawn: (stdin: NonNullable<Spawn["stdin"]>) => Promise<Process>
): Promise<WritableSessionProcess> => {
  const { readable, writable } = ByteStream.pipe()
  return { ...(await start(spawn(readable))), stdin: writable }
}

const deliver = async (
  process: Process,
  channels: Readonly<Record<"stdout" | "stderr", ByteStream.Channel>>
): Promise<void> => {
  const both = Object.values(channels)
  try {
    for await (const { bytes, channel } of process.output) await channels[channel].push(bytes)
    for (const { close } of both) close()
  } catch (error) {
    for (const { fail } of both) fail(error)
  }
}

const end = async (process: Process): Promise<void> => {
  const ended = process.exit.then(
    () => undefined,
    () => undefined
  )
  // It may have ended, or the sandbox may be closed. The rest of it is killed below in any case.
  await process.kill("SIGTERM").catch(() => undefined)
  const { promise: late, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, killGraceSeconds * 1000)
  await Promise.race([ended, late])
  clearTimeout(timer)
  await process[Symbol.asyncDispose]()
}
