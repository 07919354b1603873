/**
 * `shell.exec`: one command of a session, to its end.
 *
 * The same tool over any `Executor`: that of a sealed sandbox, or the host's where somebody has chosen it. How a
 * command ends is a result and no failure, a time-out included: the model must see what was said until then. So are
 * limits that a sandbox holds a command to, as `error`. It fails as `validation` where it could not be started as it
 * was asked for, and as `unavailable` where there is no sandbox any more.
 */
import { type Executor, killGraceSeconds, type RunningCommand } from "@cogni/sandbox-core/Executor"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { OutputLimitExceeded, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Duration, Effect, Fiber, Option, Schema, Stream } from "effect"
import * as ToolFault from "./internal/ToolFault.ts"
import * as Excerpt from "./Excerpt.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import * as Tool from "./Tool.ts"

export interface ShellToolsOptions extends ToolPath.PlaceOptions {
  /** The longest that a call may name (600); one that names none has 120, or this. */
  readonly timeoutSecondsMax?: number | undefined
  /** Of each of stdout and stderr, in the result (30,000): their beginning and their end are kept. */
  readonly outputBytesMax?: number | undefined
  /** What a command may write in all before it is ended (64 MiB). */
  readonly outputReadBytesMax?: number | undefined
}

/** What `shell.exec` gives. */
export const ShellResult = Schema.Struct({
  /** As a shell tells it: 128 and the signal's number where one ended it. `null` where the sandbox ended it. */
  exit_code: Schema.NullOr(Schema.Int),
  signal: Schema.optionalKey(Schema.String),
  stdout: Schema.String,
  stderr: Schema.String,
  /** Whether anything of either is not shown. */
  truncated: Schema.Boolean,
  duration_ms: Schema.Int,
  timed_out: Schema.Boolean,
  /** Where it ran, in the form the caller gave. */
  cwd: Schema.String,
  /** The limit of the sandbox that ended it. */
  error: Schema.optionalKey(Schema.Struct({ code: ToolFault.LimitCode, message: Schema.String }))
})

export type ShellResult = typeof ShellResult.Type

export const make = (executor: Executor, options: ShellToolsOptions = {}): ReadonlyArray<Tool.Tool> => {
  const { outputBytesMax = 30_000, outputReadBytesMax = 64 * 1024 * 1024, timeoutSecondsMax = 600 } = options
  const timeoutSeconds = Math.min(120, timeoutSecondsMax)
  const places = { ...options, workspace: executor.workspace }
  return [
    Tool.make({
      name: "shell__exec",
      description:
        `Run a command with /bin/sh -c, and wait for its end. A non-zero exit code is a result. It is ended after ` +
        `timeout_seconds (${timeoutSeconds} when left out, ${timeoutSecondsMax} at most) and what it said until then is ` +
        `given; start what is to go on with process__start. Long output loses its middle: write it to a file and read ` +
        `parts of it.`,
      effect: "state_change",
      input: Schema.Struct({
        command: ToolInput.Command,
        cwd: Schema.optionalKey(ToolInput.Directory),
        env: Schema.optionalKey(ToolInput.Environment),
        stdin: Schema.optionalKey(
          Schema.String.annotate({ description: "What it reads on standard input; nothing when left out" })
        ),
        timeout_seconds: Schema.optionalKey(ToolInput.seconds(0.1, timeoutSecondsMax))
      }),
      output: ShellResult,
      runtimeSecondsMax: timeoutSecondsMax + killGraceSeconds + ToolInput.slackSeconds,
      resultBytesMax: ToolInput.jsonBytesMax(2 * outputBytesMax),
      execute: ({ command, cwd, env, stdin, timeout_seconds }) =>
        Effect.gen(function* () {
          const path = yield* ToolPath.at("cwd", cwd, places)
          const running = yield* executor
            // Without a word of where, the executor says it: a host that stands in for a sandbox has another place.
            .spawn(command, {
              env,
              stdin,
              workingDirectory: cwd === undefined ? options.workingDirectory : path.inside
            })
            .pipe(ToolFault.told(path))
          const collected = yield* collect(running, outputBytesMax, outputReadBytesMax)
          const [took, end] = yield* Effect.timed(
            within(timeout_seconds ?? timeoutSeconds, running, collected.ended, path)
          )
          const duration_ms = Math.round(Duration.toMillis(took))
          return { ...end, ...collected.said(), duration_ms, cwd: path.shown }
        }).pipe(Effect.scoped)
    })
  ]
}

type End = Pick<ShellResult, "exit_code" | "signal" | "timed_out" | "error">

/** Read a command to its end, in memory that is bounded whatever it prints. */
const collect = Effect.fnUntraced(function* (
  running: RunningCommand,
  outputBytesMax: number,
  outputReadBytesMax: number
) {
  const channels = {
    stdout: Excerpt.collector(outputBytesMax),
    stderr: Excerpt.collector(outputBytesMax)
  }
  let readBytes = 0
  const ended = yield* Stream.runForEach(running.output, ({ bytes, channel }) => {
    channels[channel].add(bytes)
    readBytes += bytes.byteLength
    return readBytes > outputReadBytesMax ? Effect.fail(tooMuch(outputReadBytesMax)) : Effect.void
  }).pipe(
    Effect.andThen(running.exit),
    Effect.map(({ exitCode, signal }): End => ({
      exit_code: exitCode,
      ...(signal === undefined ? {} : { signal }),
      timed_out: false
    })),
    Effect.catch((error) => {
      const limit = ToolFault.limitOf(error.reason)
      return limit === undefined
        ? Effect.fail(error)
        : Effect.succeed<End>({ exit_code: error.partial?.exitCode ?? null, timed_out: false, error: limit })
    }),
    Effect.forkScoped({ startImmediately: true })
  )
  return {
    ended,
    said: () => {
      const [stdout, stderr] = [channels.stdout.excerpt(), channels.stderr.excerpt()]
      const truncated = stdout.bytesMissing + stderr.bytesMissing > 0
      return { stdout: stdout.text, stderr: stderr.text, truncated }
    }
  }
})

/** What a command is that has not ended in its grace: whoever holds its scope kills it. */
const killed: End = { exit_code: 137, signal: "SIGKILL", timed_out: true }

/** Wait so long for a command, then ask it to end: whoever has something to put away may. */
const within = Effect.fnUntraced(function* (
  seconds: number,
  running: RunningCommand,
  ended: Fiber.Fiber<End, SandboxError>,
  path: ToolPath.ToolPath
) {
  const joined = Fiber.join(ended).pipe(ToolFault.told(path))
  const first = yield* Effect.timeoutOption(joined, Duration.seconds(seconds))
  if (Option.isSome(first)) return first.value
  const last = yield* running.signal("SIGTERM").pipe(
    Effect.ignore,
    Effect.andThen(joined),
    Effect.map((end): End => ({ ...end, timed_out: true })),
    Effect.timeoutOption(Duration.seconds(killGraceSeconds))
  )
  return Option.getOrElse(last, () => killed)
})

const tooMuch = (outputBytesMax: number) =>
  new SandboxError({
    reason: new OutputLimitExceeded({ outputBytesMax, partial: { output: emptyOutput, peak: {} } })
  })
