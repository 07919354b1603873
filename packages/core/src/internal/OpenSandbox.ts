/** Opens a sandbox for commands: starts it, enforces its limits, and writes its record when the scope closes. */
import { Effect, Exit, Ref, type Scope } from "effect"
import type * as Executor from "../Executor.ts"
import * as ExecutorCommand from "../ExecutorCommand.ts"
import type { Posture } from "../Posture.ts"
import type { RunId } from "../RunId.ts"
import { emptyOutput } from "../RunResult.ts"
import { type Reason, SandboxError } from "../SandboxError.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import { attribute } from "../Telemetry.ts"
import * as SandboxPlace from "../SandboxPlace.ts"
import * as AgentWatch from "./AgentWatch.ts"
import type { RunLife } from "./RunLife.ts"
import * as RunStart from "./RunStart.ts"
import * as SandboxExec from "./SandboxExec.ts"
import * as SandboxGuard from "./SandboxGuard.ts"

/** A sandbox that accepts commands until its scope closes. Its limits apply to each of them. */
export interface Sandbox extends Executor.Executor {
  readonly runId: RunId
  readonly posture: Posture
  /** Never succeeds; fails when the sandbox can no longer be used. */
  readonly ended: Effect.Effect<never, SandboxError>
  /** Socket through which a loop on the host reaches the model, if the spec's `llm.caller` is `host`. */
  readonly llmSocketPath?: string | undefined
}

export const make = Effect.fnUntraced(function* (
  ports: RunStart.Ports,
  life: RunLife,
  spec: SandboxSpec
): Effect.fn.Return<Sandbox, SandboxError, Scope.Scope> {
  const { container, endpoint, posture, whyBroken, workspace } = yield* start(ports, life, spec)
  const { egress, runId } = life
  const broken = yield* SandboxGuard.make(container, spec.limits, {
    ...AgentWatch.watchedOf(container, workspace),
    failure: endpoint?.failure ?? Effect.never,
    violation: egress.violation,
    onBroken: (why) => Ref.set(whyBroken, why)
  })
  const error = (reason: Reason) => new SandboxError({ runId, reason })
  const context = { error, broken, inspect: egress.inspect, violated: egress.violated }
  const unlessBroken = SandboxExec.unlessBroken(context)
  const spawn: Sandbox["spawn"] = (line, options) =>
    ExecutorCommand.commandOf(line, options).pipe(
      Effect.mapError(error),
      Effect.flatMap((command) => SandboxExec.spawn(container, command, spec.limits, context))
    )
  const exec = ExecutorCommand.execOf(spawn, spec.limits, { [attribute.runId]: runId })
  const { files } = container
  return {
    runId,
    posture,
    workspace: SandboxPlace.target,
    ended: unlessBroken(Effect.never),
    llmSocketPath: spec.llm?.caller === "host" ? endpoint?.hostSocketPath : undefined,
    spawn,
    exec: (line, options) =>
      exec(line, options).pipe(
        Effect.mapError((failed) => (failed.runId === undefined ? error(failed.reason) : failed))
      ),
    files: {
      read: (path, options) => unlessBroken(files.read(path, options)),
      write: (path, content) => unlessBroken(files.write(path, content)),
      list: (path) => unlessBroken(files.list(path)),
      stat: (path) => unlessBroken(files.stat(path)),
      remove: (path, options) => unlessBroken(files.remove(path, options))
    }
  }
})

/** Starts the sandbox. Its record is written if the start fails, and otherwise when the scope closes. */
const start = Effect.fnUntraced(function* (ports: RunStart.Ports, life: RunLife, spec: SandboxSpec) {
  const whyBroken = yield* Ref.make<SandboxGuard.Broken | undefined>(undefined)
  const ended = Effect.map(Ref.get(whyBroken), (why) =>
    why === undefined ? Exit.succeed(undefined) : Exit.fail(why({ output: emptyOutput, peak: {} }))
  )
  const started = yield* RunStart.make(ports, life, spec, { supervised: true }).pipe(
    Effect.onExit((exit) => {
      if (Exit.isFailure(exit)) return life.record(Exit.failCause(exit.cause))
      const { endpoint } = exit.value
      const lastLook = endpoint === undefined ? Effect.void : life.lastLook(endpoint)
      return Effect.addFinalizer(() => Effect.andThen(lastLook, Effect.flatMap(ended, life.record)))
    }),
    Effect.catch(life.error)
  )
  return { ...started, whyBroken }
})
