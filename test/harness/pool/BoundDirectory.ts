/**
 * A directory bound into a waiting sandbox by hand, step by step, and a separate process that does so and is killed.
 */
import { type Container, ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import type { PreparedDirectories } from "@cogni/sandbox-core/WaitingSandbox"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import * as Engine from "../Engine.ts"
import * as Images from "../Images.ts"
import * as LinkedPrograms from "../LinkedPrograms.ts"
import * as Pace from "../Pace.ts"

export interface Bound {
  readonly prepared: PreparedDirectories
  readonly spec: ContainerSpec
  /** Its `start` binds the directory. */
  readonly container: Container
}

/** Prepares a sandbox for a run of a shell line in a directory. The scope removes it. */
export const bound = Effect.fnUntraced(function* (
  path: string,
  line: string,
  change: (spec: ContainerSpec) => ContainerSpec = (spec) => spec
): Effect.fn.Return<Bound, unknown, ContainerRuntime | Workspace | Scope.Scope> {
  const { prepare } = yield* ContainerRuntime
  const workspaces = yield* Workspace
  if (prepare === undefined || workspaces.prepare === undefined)
    return yield* Effect.die(new Error("no sandbox can wait"))
  const image = Images.runtime
  const { limits, workspace: source } = yield* SpecDecoder.decode({
    image,
    argv: ["sh"],
    workspace: { type: "directory", path }
  })
  const prepared = yield* workspaces.prepare({ memory: false })
  const { mounts, user } = prepared
  const waitingId = yield* RunId.generate
  const waiting = yield* prepare({ waitingId, image, user, mounts, limits, waitSecondsMax: 60 })
  const runId = yield* RunId.generate
  const { workspaceBytesMax } = limits
  const workspace = yield* workspaces.acquire({
    runId,
    source,
    inputs: [],
    planted: [],
    memory: false,
    workspaceBytesMax,
    prepared
  })
  const spec = change({
    runId,
    role: "agent",
    image,
    argv: ["sh", "-c", line],
    env: {},
    user: workspace.user,
    mounts: workspace.mounts,
    network: { mode: "none" },
    limits
  })
  return { prepared, spec, container: yield* waiting.bind(spec) }
})

/** A process whose sandbox has a directory, and whose agent has not started. */
export interface BoundProcess {
  readonly containerId: string
  /** Sends SIGKILL and waits for the end. */
  readonly kill: Effect.Effect<void>
}

interface Asked {
  readonly path: string
  /** Directory for those of the waiting sandbox. */
  readonly waiting: string
}

export const start = (asked: Asked): Effect.Effect<BoundProcess, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const program = LinkedPrograms.pathOf(import.meta.filename)
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, ["--disable-warning=ExperimentalWarning", program, JSON.stringify(asked)], {
          stdio: ["ignore", "pipe", "inherit"]
        })
      ),
      (made) => Effect.sync(() => made.kill("SIGKILL"))
    )
    const first = Effect.callback<string>((resume) => {
      const lines = createInterface({ input: child.stdout })
      // Other lines are logs.
      lines.on("line", (line) => line.startsWith("bound ") && resume(Effect.succeed(line.slice(6))))
      lines.once("close", () => resume(Effect.die(new Error("the process has ended"))))
    })
    return {
      containerId: yield* Effect.timeout(first, Pace.hangMillis / 2),
      kill: Effect.callback((resume) => {
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
    }
  })

const program = ({ path, waiting }: Asked) =>
  Effect.gen(function* () {
    const { container } = yield* bound(path, "touch never")
    yield* container.start
    process.stdout.write(`bound ${container.id}\n`)
    return yield* Effect.never
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Layer.merge(
        HostWorkspace.layer({ waiting }),
        DockerContainerRuntime.layer({ ...Engine.options, reap: false })
      )
    )
  )

if (import.meta.main) NodeRuntime.runMain(program(JSON.parse(process.argv[2]!)))
