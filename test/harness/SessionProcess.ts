/**
 * A separate host process that keeps sessions open, for tests that kill it.
 *
 * The first half starts the process and waits until it reports its sessions. The second half is the program of the
 * process.
 */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Duration, Effect, Layer, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import * as LinkedPrograms from "./LinkedPrograms.ts"
import * as RunHarness from "./RunHarness.ts"
import * as SessionHarness from "./SessionHarness.ts"

export interface Asked {
  /** Directory of the runs and of the sessions' workspaces. */
  readonly directory: string
  readonly host: string
  readonly sessionIds: ReadonlyArray<string>
  /** Command for each session. Processes that it leaves running stay. */
  readonly command: string
}

export interface SessionProcess {
  /** Run IDs of the sessions, in the same order. */
  readonly runIds: ReadonlyArray<RunId>
  /** Sends SIGKILL and waits for the end. */
  readonly kill: Effect.Effect<void>
}

const readySecondsMax = 300

/** Settles when its sessions are open and the command has ended in each. */
export const start = (asked: Asked): Effect.Effect<SessionProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          [
            "--disable-warning=ExperimentalWarning",
            LinkedPrograms.pathOf(import.meta.filename),
            JSON.stringify(asked)
          ],
          { stdio: ["ignore", "pipe", "inherit"] }
        )
      ),
      (made) => Effect.sync(() => made.kill("SIGKILL"))
    )
    const first = Effect.callback<ReadonlyArray<string>>((resume) => {
      const lines = createInterface({ input: child.stdout })
      // Other lines are logs.
      lines.on("line", (line) => line.startsWith('["') && resume(Effect.succeed(JSON.parse(line))))
      lines.once("close", () => resume(Effect.die(new Error("the process has ended"))))
    })
    const runIds = yield* Effect.timeout(first, Duration.seconds(readySecondsMax)).pipe(Effect.orDie)
    return {
      runIds: runIds.map((id) => RunId.make(id)),
      kill: Effect.callback((resume) => {
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
    }
  })

/** The services that a manager of sessions needs, over the engine at this address. */
export const layer = ({ directory, host }: Pick<Asked, "directory" | "host">) =>
  SandboxRunner.layer.pipe(
    Layer.provide([
      HostWorkspace.layer(),
      FileRunStore.layer({ directory, trafficOf: "unknown" }),
      LlmProxy.layerNoop
    ]),
    Layer.provide(DockerContainerRuntime.layer({ host, reap: false })),
    Layer.provideMerge(Layer.succeed(RunHarness.Directory, directory))
  )

const program = (asked: Asked) =>
  Effect.gen(function* () {
    const manager = yield* SessionHarness.manager({ keeps: true })
    const sandboxes = yield* Effect.forEach(asked.sessionIds, manager.getOrCreate, {
      concurrency: "unbounded"
    })
    yield* Effect.forEach(sandboxes, (sandbox) => sandbox.exec(asked.command))
    process.stdout.write(`${JSON.stringify(sandboxes.map(({ runId }) => runId))}\n`)
    return yield* Effect.never
  }).pipe(Effect.scoped, Effect.provide(layer(asked)))

if (import.meta.main) NodeRuntime.runMain(program(JSON.parse(process.argv[2]!)))
