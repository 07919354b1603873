/**
 * Background processes of a session: start, list, read logs, signal, wait.
 *
 * All processes end with the table's scope. Their output costs bounded memory, because only its end is kept, and
 * bounded time, because it is read at `readBytesPerSecondMax` at most: a process that writes more has to wait. Ended
 * processes are kept for a while, so that their exit code and log remain available.
 */
import type { Executor, RunningCommand } from "@cogni/sandbox-core/Executor"
import type { SignalName, SpawnOptions } from "@cogni/sandbox-core/ExecutorValues"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Clock, Deferred, Duration, Effect, Exit, Schema, Scope, Stream } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"

/** No process of this table has this ID, or it ended so long ago that it was removed. */
export class UnknownProcess extends Schema.TaggedError<UnknownProcess>()("UnknownProcess", {
  processId: Schema.String
}) {
  override get message(): string {
    return `there is no process ${JSON.stringify(this.processId.slice(0, 100))}. List the processes; those that ended long ago are removed`
  }
}

/** A process was not started. */
class ProcessRefused extends Schema.TaggedError<ProcessRefused>()("ProcessRefused", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the process was not started: ${this.detail}. ${this.remedy}`
  }
}

export interface ProcessTableOptions {
  /** Running processes (default 64). */
  readonly processesMax?: number | undefined
  /** Ended processes that are kept (default 64). */
  readonly endedMax?: number | undefined
  /** Kept output per process (default 256 KiB). */
  readonly logBytesMax?: number | undefined
  /** Read rate per process (default 1 MiB), after an initial burst of one second's worth. */
  readonly readBytesPerSecondMax?: number | undefined
}

interface ProcessStart extends Pick<SpawnOptions, "env" | "workingDirectory"> {
  readonly command: string
  /** A label for people; it does not identify the process. */
  readonly name?: string | undefined
}

/** State of a process. */
export const Process = Schema.Struct({
  processId: Schema.String,
  name: Schema.optionalKey(Schema.String),
  command: Schema.String,
  /** As given at the start. */
  workingDirectory: Schema.optionalKey(Schema.String),
  state: Schema.Literals(["running", "ended"]),
  /** Absent while it runs, and if the sandbox ended it or was lost. */
  exitCode: Schema.optionalKey(Schema.Int),
  signal: Schema.optionalKey(Schema.String),
  startedAt: Schema.DateFromString,
  endedAt: Schema.optionalKey(Schema.DateFromString),
  /** Total output so far. */
  outputBytes: Schema.Int,
  /** The limit that it broke, `CommandRefused` or `SandboxEnded`. */
  error: Schema.optionalKey(Schema.Struct({ code: Schema.String, message: Schema.String }))
})

export type Process = typeof Process.Type

type ProcessEnd = Pick<Process, "endedAt" | "error" | "exitCode" | "signal">

/** The end of a process's output, both channels in order of arrival. */
interface ProcessLog {
  readonly process: Process
  readonly text: string
  /** Requested bytes that are not in `text`: no longer kept, or over its limit. */
  readonly droppedBytes: number
  /** Pass this as `afterByte` to continue. */
  readonly nextByte: number
}

export interface ProcessTable {
  readonly start: (what: ProcessStart) => Effect.Effect<Process, ProcessRefused | SandboxError>
  /** Ordered by start, the oldest first. */
  readonly list: Effect.Effect<ReadonlyArray<Process>>
  readonly log: (
    processId: string,
    options: { readonly afterByte?: number | undefined; readonly textBytesMax: number }
  ) => Effect.Effect<ProcessLog, UnknownProcess>
  /** Sends a signal. Returns whether the process was still running. */
  readonly signal: (
    processId: string,
    name: SignalName
  ) => Effect.Effect<boolean, UnknownProcess | SandboxError>
  /** Returns when the process has ended, or after the given time. */
  readonly wait: (processId: string, seconds: number) => Effect.Effect<Process, UnknownProcess>
}

interface Entry {
  readonly started: Omit<Process, "outputBytes" | "state" | keyof ProcessEnd>
  readonly running: RunningCommand
  readonly log: Excerpt.LastBytes
  readonly ended: Deferred.Deferred<ProcessEnd>
  end?: ProcessEnd
}

export const make = Effect.fnUntraced(function* (
  executor: Pick<Executor, "spawn">,
  options: ProcessTableOptions = {}
): Effect.fn.Return<ProcessTable, never, Scope.Scope> {
  const { endedMax = 64, logBytesMax = 256 * 1024, processesMax = 64 } = options
  const { readBytesPerSecondMax = 1024 * 1024 } = options
  const scope = yield* Effect.acquireRelease(Scope.make("parallel"), (all, exit) => Scope.close(all, exit))
  const entries = new Map<string, Entry>()
  /** Includes processes that are being spawned. */
  let running = 0
  let lastId = 0
  let closed = false
  yield* Effect.addFinalizer(() => Effect.sync(() => (closed = true)))

  const find = (processId: string) =>
    Effect.suspend(() => {
      const entry = entries.get(processId)
      return entry === undefined ? Effect.fail(new UnknownProcess({ processId })) : Effect.succeed(entry)
    })

  /** Removes the ended processes that started first, beyond `endedMax`. */
  const forget = () => {
    const over = [...entries].filter(([, { end }]) => end !== undefined)
    for (const [id] of over.slice(0, Math.max(0, over.length - endedMax))) entries.delete(id)
  }

  const follow = (entry: Entry, own: Scope.Closeable) =>
    read(entry, readBytesPerSecondMax).pipe(
      Effect.flatMap((end) => {
        entry.end = end
        running--
        forget()
        return Deferred.succeed(entry.ended, end)
      }),
      Effect.ensuring(Scope.close(own, Exit.void))
    )

  const start = (what: ProcessStart) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (closed) return yield* new ProcessRefused(sessionOver)
        if (running >= processesMax) return yield* new ProcessRefused(tooMany(processesMax))
        running++
        const { command, env, name, workingDirectory } = what
        const own = yield* Scope.fork(scope)
        const spawned = yield* restore(
          executor.spawn(command, { env, workingDirectory }).pipe(Scope.provide(own))
        ).pipe(
          Effect.onError(() => {
            running--
            return Scope.close(own, Exit.void)
          })
        )
        const processId = `proc-${++lastId}`
        const entry: Entry = {
          started: {
            processId,
            command,
            ...(name === undefined ? {} : { name }),
            ...(workingDirectory === undefined ? {} : { workingDirectory }),
            startedAt: new Date(yield* Clock.currentTimeMillis)
          },
          running: spawned,
          log: Excerpt.lastBytes(logBytesMax),
          ended: yield* Deferred.make<ProcessEnd>()
        }
        entries.set(processId, entry)
        yield* Effect.forkIn(Effect.interruptible(follow(entry, own)), scope, { startImmediately: true })
        return described(entry)
      })
    )

  return {
    start,
    list: Effect.sync(() => [...entries.values()].map(described)),
    log: (processId, asked) => Effect.map(find(processId), (entry) => logOf(entry, asked)),
    signal: (processId, name) =>
      Effect.flatMap(find(processId), (entry) =>
        entry.end === undefined ? Effect.as(entry.running.signal(name), true) : Effect.succeed(false)
      ),
    wait: (processId, seconds) =>
      Effect.flatMap(find(processId), (entry) =>
        Deferred.await(entry.ended).pipe(
          Effect.timeoutOption(Duration.seconds(seconds)),
          Effect.map(() => described(entry))
        )
      )
  }
})

const sessionOver = { detail: "the session has ended", remedy: "Start another session" }

const tooMany = (processesMax: number) => ({
  detail: `the session's limit of ${processesMax} running processes is reached`,
  remedy: "End a process that is not needed with SIGTERM, then try again"
})

const described = ({ end, log, started }: Entry): Process => ({
  ...started,
  state: end === undefined ? "running" : "ended",
  outputBytes: log.total(),
  ...end
})

/** Reads a process's output to its end, at a bounded pace. */
const read = ({ log, running }: Entry, bytesPerSecond: number): Effect.Effect<ProcessEnd> => {
  // Bytes of one channel must not complete a character of the other.
  const texts = { stdout: Excerpt.wellFormed(), stderr: Excerpt.wellFormed() }
  /** When the bytes read so far would have been read at an even pace. */
  let dueMs = Number.NEGATIVE_INFINITY
  return Stream.runForEach(running.output, ({ bytes, channel }) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      log.add(texts[channel](bytes))
      dueMs = Math.max(dueMs, nowMs - burstMs) + (bytes.byteLength / bytesPerSecond) * 1000
      return dueMs > nowMs ? Effect.sleep(Duration.millis(Math.ceil(dueMs - nowMs))) : Effect.void
    })
  ).pipe(
    Effect.andThen(running.exit),
    Effect.map(({ exitCode, signal }) => ({ exitCode, ...(signal === undefined ? {} : { signal }) })),
    Effect.catch((error) => lost(error)),
    Effect.catchDefect((defect) => gone(String(defect))),
    Effect.tap(() => Effect.sync(() => [texts.stdout(), texts.stderr()].forEach(log.add))),
    Effect.flatMap((end) => Effect.map(Clock.currentTimeMillis, (ms) => ({ ...end, endedAt: new Date(ms) })))
  )
}

const burstMs = 1000

const lost = (error: SandboxError) => {
  const { partial, reason } = error
  const exitCode = partial?.exitCode
  if (reason._tag === "CommandRefused") {
    return Effect.succeed({ error: { code: reason._tag as string, message: reason.message } })
  }
  const limit = ToolFault.limitOf(reason)
  return limit === undefined
    ? gone(error.message)
    : Effect.succeed({ ...(exitCode === undefined ? {} : { exitCode }), error: limit })
}

const gone = (why: string) =>
  Effect.as(Effect.logWarning(`a process of a session was lost with its sandbox: ${why}`), {
    error: { code: "SandboxEnded", message: "its sandbox has ended" }
  })

const logOf = (
  entry: Entry,
  { afterByte = 0, textBytesMax }: { readonly afterByte?: number | undefined; readonly textBytesMax: number }
): ProcessLog => {
  const nextByte = entry.log.total()
  const from = Math.min(Math.max(afterByte, 0), nextByte)
  const wanted = Math.min(textBytesMax, nextByte - from)
  const shown = Excerpt.suffix(entry.log.bytes(), wanted)
  return {
    process: described(entry),
    text: Excerpt.decode(shown),
    droppedBytes: nextByte - from - shown.byteLength,
    nextByte
  }
}
