/**
 * The sandbox of one session: a container that stays open and runs one command after another.
 *
 *     create (isolate, hold, verify, start) ─► exec · spawn · files ─► destroy
 *
 * It is a `Sandbox` of core with a session ID, so a session is confined like a run: no network, no capabilities, limits
 * on memory, processes, output, disk and time. Its posture is read from inside, and it has a record. Files and
 * background processes persist between commands; the environment does not.
 */
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { OpenSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Cause, Context, Deferred, Effect, Exit, Layer, Option, Scope } from "effect"
import * as RepoMemory from "../router/RepoMemory.ts"
import type { SessionId } from "./SessionId.ts"

/** Spec of the sandboxes of sessions, without the parts that each session sets itself. */
export type SandboxSettings = Omit<OpenSpecInput, "runId" | "workspace" | "inputs" | "memory">

export interface SessionSandbox extends Sandbox {
  readonly sessionId: SessionId
  readonly isRunning: Effect.Effect<boolean>
  /** Ends the sandbox and everything that runs in it. Settles when it is removed. Has no effect the second time. */
  readonly destroy: Effect.Effect<void>
  /** The agent's notes on the workspace; `undefined` if it wrote none. */
  readonly memory: Effect.Effect<
    RepoMemory.RepoMemory | undefined,
    SandboxError | RepoMemory.RepoMemoryInvalid
  >
}

export interface CreateOptions {
  readonly sessionId: SessionId
  readonly settings: SandboxSettings
  readonly workspace: NonNullable<OpenSpecInput["workspace"]>
}

export class DockerSandbox extends Context.Service<
  DockerSandbox,
  {
    /** Creates and starts a container for a session. It is removed when the scope closes, or when it is destroyed. */
    readonly create: (options: CreateOptions) => Effect.Effect<SessionSandbox, SandboxError, Scope.Scope>
  }
>()("@cogni/sandbox-sessions/DockerSandbox") {}

const make = Effect.gen(function* () {
  const runner = yield* SandboxRunner

  const create = Effect.fn("DockerSandbox.create")(function* (options: CreateOptions) {
    const { sessionId, settings, workspace } = options
    const scope = yield* Effect.acquireRelease(Scope.make(), (made, exit) => Scope.close(made, exit))
    // The agent keeps its notes in `/workspace/.cogni`, so no inputs of the host are mounted there.
    const sandbox = yield* runner.open({ ...settings, workspace, memory: true }).pipe(Scope.provide(scope))
    const over = yield* Deferred.make<never, SandboxError>()
    const named = `the sandbox ${sandbox.runId} of the session ${JSON.stringify(sessionId)}`
    yield* Effect.logInfo(`${named} is open`)
    yield* sandbox.ended.pipe(
      Effect.onExit((exit) =>
        Effect.andThen(Deferred.done(over, exit), Effect.logInfo(`${named} ${describeEnd(exit)}`))
      ),
      Effect.ignore,
      Effect.forkIn(scope, { startImmediately: true })
    )
    return {
      ...sandbox,
      sessionId,
      isRunning: Effect.map(Deferred.isDone(over), (done) => !done),
      ended: Deferred.await(over),
      destroy: Scope.close(scope, Exit.void),
      memory: RepoMemory.read(sandbox)
    } satisfies SessionSandbox
  })
  return DockerSandbox.of({ create })
})

/** Describes how a sandbox ended. It is interrupted when its session closes. */
const describeEnd = (exit: Exit.Exit<never, SandboxError>): string => {
  const error = Exit.isFailure(exit) ? Option.getOrUndefined(Cause.findErrorOption(exit.cause)) : undefined
  if (error === undefined) return "is closed"
  const { reason } = error
  return reason._tag === "TimedOut"
    ? `ended, because its lifetime of ${reason.runtimeSecondsMax} s is over`
    : `ended: ${reason.message}`
}

export const layer: Layer.Layer<DockerSandbox, never, SandboxRunner> = Layer.effect(DockerSandbox, make)
