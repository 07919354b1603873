/**
 * Runs the real `cogni-sandbox` as a child process.
 *
 * The child inherits no environment variables, and stores its records in a directory that is removed after the tests.
 * Leftovers of its runs are found by run ID.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Engine from "./Engine.ts"
import * as Images from "./Images.ts"
import * as LeakCheck from "./LeakCheck.ts"
import * as LinkedPrograms from "./LinkedPrograms.ts"
import { Directory } from "./RunHarness.ts"

/** Path of the command, to start with Node. */
export const program = LinkedPrograms.pathOf(
  fileURLToPath(new URL("../../packages/cli/src/bin.ts", import.meta.url))
)

export interface Options {
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Text for standard input, which is then closed. */
  readonly stdin?: string | Uint8Array | undefined
  /** The test writes to the standard input of the process itself, and ends it. */
  readonly keepsStdinOpen?: boolean
}

export interface Ended {
  /** Exit code as in a shell: 128 plus the signal number if a signal ended the process. */
  readonly code: number
  readonly stdout: Buffer
  readonly stderr: string
}

export interface Started {
  readonly child: ChildProcess
  /** Settles when the output so far matches a pattern, on either stream. */
  readonly said: (pattern: RegExp) => Effect.Effect<void>
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
  readonly ended: Effect.Effect<Ended>
}

export class CliProcess extends Context.Service<
  CliProcess,
  {
    readonly stateDirectory: string
    readonly start: (
      argv: ReadonlyArray<string>,
      options?: Options
    ) => Effect.Effect<Started, never, Scope.Scope>
    readonly run: (argv: ReadonlyArray<string>, options?: Options) => Effect.Effect<Ended>
    /** Resources of this state directory's runs, on the engine and on disk, that only an active run may have. */
    readonly leftovers: Effect.Effect<ReadonlyArray<string>>
  }
>()("test/CliProcess") {}

const signalNumbers: Partial<Record<NodeJS.Signals, number>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGKILL: 9,
  SIGTERM: 15
}

const observe = (child: ChildProcess): Started => {
  const out: Array<Buffer> = []
  const err: Array<Buffer> = []
  const listeners = new Set<() => void>()
  const take = (pieces: Array<Buffer>) => (piece: Buffer) => {
    pieces.push(piece)
    for (const listener of listeners) listener()
  }
  child.stdout?.on("data", take(out))
  child.stderr?.on("data", take(err))
  const closed = new Promise<number>((resolve) => {
    child.once("close", (code, signal) =>
      resolve(code ?? 128 + (signal === null ? 0 : (signalNumbers[signal] ?? 0)))
    )
  })
  return {
    child,
    said: (pattern) =>
      Effect.callback((resume) => {
        const look = () => {
          if (pattern.test(Buffer.concat([...out, ...err]).toString("utf8"))) resume(Effect.void)
        }
        listeners.add(look)
        look()
        return Effect.sync(() => listeners.delete(look))
      }),
    kill: (signal) => Effect.sync(() => void child.kill(signal)),
    ended: Effect.map(
      Effect.promise(() => closed),
      (code) => ({
        code,
        stdout: Buffer.concat(out),
        stderr: Buffer.concat(err).toString("utf8")
      })
    )
  }
}

const make = Effect.gen(function* () {
  const stateDirectory = yield* Directory
  const api = yield* DockerApi.DockerApi
  const environment = {
    COGNI_STATE_DIR: stateDirectory,
    COGNI_RUNTIME_IMAGE: Images.runtime,
    COGNI_PROXY_IMAGE: Images.proxy,
    COGNI_BILLING_ACCOUNT: "acct-tests",
    ...Engine.variables
  }
  const start = (argv: ReadonlyArray<string>, options: Options = {}) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", program, ...argv], {
          env: { ...environment, ...options.env },
          stdio: ["pipe", "pipe", "pipe"]
        })
        // A program that does not read its input may end before all of it is written.
        child.stdin.on("error", () => undefined)
        if (options.keepsStdinOpen !== true) child.stdin.end(options.stdin ?? "")
        return observe(child)
      }),
      ({ child, ended }) =>
        child.exitCode === null && child.signalCode === null
          ? Effect.andThen(
              Effect.sync(() => void child.kill("SIGKILL")),
              ended
            )
          : Effect.void
    )
  const leftovers = Effect.gen(function* () {
    const runs = join(stateDirectory, "runs")
    const ids = new Set(existsSync(runs) ? readdirSync(runs) : [])
    const found = yield* Effect.orDie(api.labelled(label.run))
    return [
      ...found
        .filter(({ labels }) => ids.has(labels[label.run] ?? ""))
        .map(({ kind, name }) => `${kind} ${name}`),
      ...LeakCheck.directories(stateDirectory)
    ]
  })
  yield* Effect.addFinalizer(() =>
    Effect.map(leftovers, (found) => assert.deepStrictEqual(found, [], "left behind"))
  )
  return CliProcess.of({
    stateDirectory,
    start,
    run: (argv, options) => Effect.scoped(Effect.flatMap(start(argv, options), ({ ended }) => ended)),
    leftovers
  })
})

/** Fails at the end if its runs have left anything behind. */
export const layer: Layer.Layer<CliProcess | DockerApi.DockerApi | Directory, RuntimeUnavailable> =
  Layer.effect(CliProcess, make).pipe(Layer.provideMerge(Layer.merge(Engine.api(), Directory.layer)))
