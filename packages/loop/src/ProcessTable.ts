/**
 * Processes of a session that go on while it talks: started, listed, listened to, signalled, waited for.
 *
 * All of them end with the scope of the table. Whatever they print costs bounded memory, for only its end is kept, and
 * bounded time, for it is read no faster than `readBytesPerSecondMax`: who writes more waits. What has ended stays for
 * a while, so that its exit code and its log can still be asked for.
 */
import type { Executor, RunningCommand, SignalName, SpawnOptions } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Clock, Deferred, Duration, Effect, Exit, Schema, Scope, Stream } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as ToolFault from "./internal/ToolFault.ts"

/** No process of this table has this id, or it ended so long ago that it is forgotten. */
export class UnknownProcess extends Schema.TaggedError<UnknownProcess>()("UnknownProcess", {
  processId: Schema.String
}) {
  override get message(): string {
    return `there is no process ${JSON.stringify(this.processId.slice(0, 100))}. List them to see which there are; long after its end one is forgotten`
  }
}

/** Another process was not started. */
export class ProcessRefused extends Schema.TaggedError<ProcessRefused>()("ProcessRefused", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the process was not started: ${this.detail}. ${this.remedy}`
  }
}

export interface ProcessTableOptions {
  /** That run at one time (64). */
  readonly processesMax?: number | undefined
  /** That have ended and are kept (64). */
  readonly endedMax?: number | undefined
  /** Of what each has printed, kept (256 KiB). */
  readonly logBytesMax?: number | undefined
  /** Of each (1 MiB), after a first second's worth at once. */
  readonly readBytesPerSecondMax?: number | undefined
}

export interface ProcessStart extends Pick<SpawnOptions, "env" | "workingDirectory"> {
  readonly command: string
  /** For people; nothing is found by it. */
  readonly name?: string | undefined
}

/** A process of the table. */
export const Process = Schema.Struct({
  processId: Schema.String,
  name: Schema.optionalKey(Schema.String),
  command: Schema.String,
  /** As it was given. */
  workingDirectory: Schema.optionalKey(Schema.String),
  state: Schema.Literals(["running", "ended"]),
  /** Absent also where the sandbox ended it, or was gone. */
  exitCode: Schema.optionalKey(Schema.Int),
  signal: Schema.optionalKey(Schema.String),
  startedAt: Schema.DateFromString,
  endedAt: Schema.optionalKey(Schema.DateFromString),
  /** All that it has printed. */
  outputBytes: Schema.Int,
  /** The limit that it broke, or `SandboxEnded`. */
  error: Schema.optionalKey(Schema.Struct({ code: Schema.String, message: Schema.String }))
})

export type Process = typeof Process.Type

type ProcessEnd = Pick<Process, "endedAt" | "error" | "exitCode" | "signal">

/** The end of what a process printed, on either channel, as it came. */
export interface ProcessLog {
  readonly process: Process
  readonly text: string
  /** Of what was asked for, not in `text`: forgotten, or too much for it. */
  readonly droppedBytes: number
  /** Ask for what comes after this byte to go on. */
  readonly nextByte: number
}

export interface ProcessTable {
  readonly start: (what: ProcessStart) => Effect.Effect<Process, ProcessRefused | SandboxError>
  /** The oldest first. */
  readonly list: Effect.Effect<ReadonlyArray<Process>>
  readonly log: (
    processId: string,
    options: { readonly afterByte?: number | undefined; readonly textBytesMax: number }
  ) => Effect.Effect<ProcessLog, UnknownProcess>
  /** Whether there was anything to signal. */
  readonly signal: (
    processId: string,
    name: SignalName
  ) => Effect.Effect<boolean, UnknownProcess | SandboxError>
  /** Answers when it has ended, or after so many seconds. */
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
  /** Counted from before it is spawned. */
  let running = 0
  let lastId = 0
  let closed = false
  yield* Effect.addFinalizer(() => Effect.sync(() => (closed = true)))

  const find = (processId: string) =>
    Effect.suspend(() => {
      const entry = entries.get(processId)
      return entry === undefined ? Effect.fail(new UnknownProcess({ processId })) : Effect.succeed(entry)
    })

  /** Only what began earliest of those that have ended is forgotten. */
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

const sessionOver = { detail: "the session has ended", remedy: "Begin another" }

const tooMany = (processesMax: number) => ({
  detail: `${processesMax} run already, which is all that a session may have`,
  remedy: "End one that is not needed any more, with SIGTERM, then try again"
})

const described = ({ end, log, started }: Entry): Process => ({
  ...started,
  state: end === undefined ? "running" : "ended",
  outputBytes: log.total(),
  ...end
})

/** Everything a process prints, at a bounded pace, to its end. */
const read = ({ log, running }: Entry, bytesPerSecond: number): Effect.Effect<ProcessEnd> => {
  // One channel must not end a character that the other has begun.
  const texts = { stdout: Excerpt.wellFormed(), stderr: Excerpt.wellFormed() }
  /** When what was read would have been read, had it come evenly. */
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
    error: { code: "SandboxEnded", message: "the sandbox it ran in is no more" }
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
