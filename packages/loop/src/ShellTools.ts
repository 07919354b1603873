/**
 * `shell.exec`: runs one command of a session to its end.
 *
 * The tool works over any `Executor`: a sealed sandbox, or the host if the operator chose it. Every end of a command is
 * a result, including a timeout, because the model must see the output until then. A broken limit of the sandbox is a
 * result too, with `error`. A call fails with `validation` if the command cannot be started as requested, and with
 * `unavailable` if the sandbox has ended.
 */
import { type Executor, type RunningCommand } from "@cogni/sandbox-core/Executor"
import { killGraceSeconds } from "@cogni/sandbox-core/ExecutorLimits"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { OutputLimitExceeded } from "@cogni/sandbox-core/SandboxReason"
import { Duration, Effect, Fiber, Option, Schema, Stream } from "effect"
import * as ToolFault from "./internal/ToolFault.ts"
import * as Excerpt from "./Excerpt.ts"
import * as ToolInput from "./internal/ToolInput.ts"
import * as ToolPath from "./internal/ToolPath.ts"
import * as Tool from "./Tool.ts"

export interface ShellToolsOptions extends ToolPath.PlaceOptions {
  /** Longest time limit of a call (default 600). A call without one gets 120, or this if it is lower. */
  readonly timeoutSecondsMax?: number | undefined
  /** Limit on each of stdout and stderr in the result (default 30,000). Their beginning and end are kept. */
  readonly outputBytesMax?: number | undefined
  /** Total output after which a command is ended (default 64 MiB). */
  readonly outputReadBytesMax?: number | undefined
}

/** Result of `shell.exec`. */
const ShellResult = Schema.Struct({
  /** As in a shell: 128 plus the signal's number if a signal ended it. `null` if the sandbox ended it. */
  exit_code: Schema.NullOr(Schema.Int),
  signal: Schema.optionalKey(Schema.String),
  stdout: Schema.String,
  stderr: Schema.String,
  /** Whether a part of stdout or stderr is missing. */
  truncated: Schema.Boolean,
  duration_ms: Schema.Int,
  timed_out: Schema.Boolean,
  /** Working directory, in the caller's form. */
  cwd: Schema.String,
  /** The sandbox limit that ended it. */
  error: Schema.optionalKey(Schema.Struct({ code: ToolFault.LimitCode, message: Schema.String }))
})

type ShellResult = typeof ShellResult.Type

export const make = (executor: Executor, options: ShellToolsOptions = {}): ReadonlyArray<Tool.Tool> => {
  const { outputBytesMax = 30_000, outputReadBytesMax = 64 * 1024 * 1024, timeoutSecondsMax = 600 } = options
  const timeoutSeconds = Math.min(120, timeoutSecondsMax)
  const places = { ...options, workspace: executor.workspace }
  return [
    Tool.make({
      name: "shell__exec",
      description:
        `Run a command with /bin/sh -c, and wait for its end. A non-zero exit code is a result. It is ended after ` +
        `timeout_seconds (default ${timeoutSeconds}, at most ${timeoutSecondsMax}), and its output until then is ` +
        `returned; start background commands with process__start. Long output loses its middle: write it to a ` +
        `file and read parts of it.`,
      effect: "state_change",
      input: Schema.Struct({
        command: ToolInput.Command,
        cwd: Schema.optionalKey(ToolInput.Directory),
        env: Schema.optionalKey(ToolInput.Environment),
        stdin: Schema.optionalKey(Schema.String.annotate({ description: "Standard input (default: empty)" })),
        timeout_seconds: Schema.optionalKey(ToolInput.seconds(0.1, timeoutSecondsMax))
      }),
      output: ShellResult,
      runtimeSecondsMax: timeoutSecondsMax + killGraceSeconds + ToolInput.slackSeconds,
      resultBytesMax: ToolInput.jsonBytesMax(2 * outputBytesMax),
      execute: ({ command, cwd, env, stdin, timeout_seconds }) =>
        Effect.gen(function* () {
          const path = yield* ToolPath.at("cwd", cwd, places)
          const running = yield* executor
            // Without a `cwd`, the executor decides: a host that replaces a sandbox has another workspace.
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

/** Reads a command's output to its end, in bounded memory. */
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

/** Result of a command that survives its grace period. Closing its scope kills it. */
const killed: End = { exit_code: 137, signal: "SIGKILL", timed_out: true }

/** Waits for a command until its time limit, then sends SIGTERM and gives it a grace period to clean up. */
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
