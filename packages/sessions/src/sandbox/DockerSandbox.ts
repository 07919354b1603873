/**
 * The sandbox of one session: a container that stays, and takes one command after another.
 *
 *     create (sealed, held, proven, let go) ─► exec · spawn · files ─► destroy
 *
 * It is a `Sandbox` of core with the name of its session, so all that holds a run to its limits holds a session to
 * them: no network, no capability, limits on memory, processes, output, disk and time, a posture that was read from
 * inside, and a record. Files and background processes stay from command to command; environment does not.
 */
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Deferred, Effect, Exit, Layer, Scope } from "effect"
import * as ProcessTable from "@cogni/sandbox-loop/ProcessTable"
import * as RepoMemory from "../router/RepoMemory.ts"
import type { SessionId } from "./SessionId.ts"

/** How the sandboxes of sessions are held. A run id is made for each. */
export type SandboxSettings = Omit<SandboxSpecInput, "argv" | "runId" | "workspace" | "inputs" | "memory">

export interface SessionSandbox extends Sandbox {
  readonly sessionId: SessionId
  readonly isRunning: Effect.Effect<boolean>
  /** End it, with all that runs in it. Settles when nothing of it is left; a second time: nothing. */
  readonly destroy: Effect.Effect<void>
  /** Processes that go on by themselves: start, list, logs, signal, wait. They end with the container. */
  readonly processes: ProcessTable.ProcessTable
  /** What the agent has written down about the workspace; absent where there is nothing. */
  readonly memory: Effect.Effect<
    RepoMemory.RepoMemory | undefined,
    SandboxError | RepoMemory.RepoMemoryInvalid
  >
}

export interface CreateOptions {
  readonly sessionId: SessionId
  readonly settings: SandboxSettings
  readonly workspace: NonNullable<SandboxSpecInput["workspace"]>
}

export class DockerSandbox extends Context.Service<
  DockerSandbox,
  {
    /** Create and start a container for a session. It goes with the scope, or when it is destroyed before. */
    readonly create: (options: CreateOptions) => Effect.Effect<SessionSandbox, SandboxError, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/DockerSandbox") {}

export const make = Effect.gen(function* () {
  const runner = yield* SandboxRunner

  const create = Effect.fn("DockerSandbox.create")(function* (options: CreateOptions) {
    const { sessionId, settings, workspace } = options
    const scope = yield* Effect.acquireRelease(Scope.make(), (made, exit) => Scope.close(made, exit))
    // The agent keeps its memory of the workspace in it, so nothing of the host's is mounted there.
    const sandbox = yield* runner.open({ ...settings, workspace, memory: true }).pipe(Scope.provide(scope))
    const over = yield* Deferred.make<never, SandboxError>()
    yield* sandbox.ended.pipe(
      Effect.onExit((exit) => Deferred.done(over, exit)),
      Effect.ignore,
      Effect.forkIn(scope, { startImmediately: true })
    )
    const processes = yield* ProcessTable.make(sandbox).pipe(Scope.provide(scope))
    return {
      ...sandbox,
      sessionId,
      isRunning: Effect.map(Deferred.isDone(over), (done) => !done),
      ended: Deferred.await(over),
      destroy: Scope.close(scope, Exit.void),
      processes,
      memory: RepoMemory.read(sandbox)
    } satisfies SessionSandbox
  })
  return DockerSandbox.of({ create })
})

export const layer: Layer.Layer<DockerSandbox, never, SandboxRunner> = Layer.effect(DockerSandbox, make)
