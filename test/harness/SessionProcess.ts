/**
 * A host process of its own that holds sessions open: to be killed.
 *
 * The tests' half starts it and waits until it says what it holds. The other half, below, is the program.
 */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { NodeRuntime } from "@effect/platform-node"
import { Duration, Effect, Layer, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import * as RunHarness from "./RunHarness.ts"
import * as SessionHarness from "./SessionHarness.ts"

export interface Asked {
  /** Where runs and the sessions' workspaces are kept. */
  readonly directory: string
  readonly host: string
  readonly sessionIds: ReadonlyArray<string>
  /** Run in each session; whatever it leaves running stays. */
  readonly command: string
}

export interface SessionProcess {
  /** Of the sessions, in their order. */
  readonly runIds: ReadonlyArray<RunId>
  /** SIGKILL. */
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
          ["--disable-warning=ExperimentalWarning", import.meta.filename, JSON.stringify(asked)],
          { stdio: ["ignore", "pipe", "inherit"] }
        )
      ),
      (made) => Effect.sync(() => made.kill("SIGKILL"))
    )
    const first = Effect.callback<ReadonlyArray<string>>((resume) => {
      const lines = createInterface({ input: child.stdout })
      // Besides, it logs.
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

/** All that a manager of sessions needs, over the engine at this address. */
export const layer = ({ directory, host }: Pick<Asked, "directory" | "host">) =>
  SandboxRunner.layer.pipe(
    Layer.provide([HostWorkspace.layer(), FileRunStore.layer({ directory }), LlmProxy.layerNoop]),
    Layer.provide(DockerContainerRuntime.layer({ host })),
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
