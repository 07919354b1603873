/**
 * The executor of one session, for the lifetime of the session. Each message runs in a sandbox or on the host.
 *
 * The place is chosen when a message first executes something, and kept until the message ends, so that no message
 * uses two places. The host replaces a sandbox only if the configuration allows it and the engine is absent. It never
 * replaces a sandbox that is refused, fails its isolation check, or breaks during use.
 */
import type * as Executor from "@cogni/sandbox-core/Executor"
import * as ExecutorCommand from "@cogni/sandbox-core/ExecutorCommand"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { CommandRefused } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { Effect, Option, Scope, Semaphore } from "effect"
import type { Executors, SessionExecutor } from "../executor/Executors.ts"
import type { SessionRefused } from "../sandbox/SandboxManager.ts"

/** Where a message executed, or would have executed. */
export interface Execution {
  readonly executor: "sandbox" | "host"
  /** True if the host replaced an unavailable sandbox. */
  readonly fallback: boolean
  /** Why the sandbox was unavailable, if it was. Commands were then refused, unless `fallback`. */
  readonly why?: string | undefined
  /** Run ID of the sandbox, if something executed in one. */
  readonly runId?: RunId | undefined
}

export interface SessionExecution {
  /** Shared by all messages; fails while no message is being answered. */
  readonly executor: Executor.Executor
  /** Executor of the current message. Chooses the place if the message has none yet. */
  readonly bound: Effect.Effect<SessionExecutor, SandboxError>
  /** Runs the work of one message at a time, and reports where it executed. */
  readonly during: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<readonly [A, Execution], E, R>
}

/** The place of execution of one message. */
interface Binding {
  readonly scope: Scope.Scope
  executor: SessionExecutor | undefined
  execution: Execution
}

export interface Options {
  readonly key: string
  readonly agent: string
  /** Configured place of execution. */
  readonly place: "sandbox" | "host"
  readonly onUnavailable: "refuse" | "host"
  readonly executors: Executors["Service"]
}

export const make = ({ agent, executors, key, onUnavailable, place }: Options): SessionExecution => {
  const lock = Semaphore.makeUnsafe(1)
  let current: Binding | undefined

  const bind = Effect.fnUntraced(function* (
    binding: Binding
  ): Effect.fn.Return<SessionExecutor, SandboxError> {
    if (binding.executor !== undefined) return binding.executor
    if (place === "host") {
      if (Option.isNone(executors.host)) return yield* refusal("there is no host executor")
      binding.executor = executors.host.value
      return binding.executor
    }
    const found = yield* executors.sandboxFor(key).pipe(
      Scope.provide(binding.scope),
      Effect.map((sandbox) => {
        binding.execution = { executor: "sandbox", fallback: false, ...idOf(sandbox) }
        return sandbox
      }),
      Effect.catch((error) => instead(binding, error))
    )
    binding.executor = found
    return found
  })

  const instead = Effect.fnUntraced(function* (
    binding: Binding,
    error: SandboxError | SessionRefused
  ): Effect.fn.Return<SessionExecutor, SandboxError> {
    const why = error.message
    if (isEngineGone(error) && onUnavailable === "host" && Option.isSome(executors.host)) {
      binding.execution = { executor: "host", fallback: true, why }
      yield* Effect.logWarning(
        `${agent} executes a message of ${JSON.stringify(key)} on the host, without a sandbox: ${why}`
      )
      return executors.host.value
    }
    // Logged once per message, although each command tries again.
    if (binding.execution.why === undefined) {
      yield* Effect.logError(`${agent} has no sandbox for a message of ${JSON.stringify(key)}: ${why}`)
    }
    binding.execution = { executor: "sandbox", fallback: false, why }
    return yield* error instanceof SandboxError ? error : refusal(error.message)
  })

  const bound = Effect.suspend(() =>
    current === undefined ? Effect.fail(refusal("no message is being answered")) : bind(current)
  ).pipe(lock.withPermit)

  const during: SessionExecution["during"] = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const binding: Binding = {
        scope,
        executor: undefined,
        execution: { executor: place, fallback: false }
      }
      current = binding
      const result = yield* effect.pipe(
        Effect.onExit((exit) => {
          current = undefined
          return Scope.close(scope, exit)
        })
      )
      return [result, binding.execution] as const
    })

  return { executor: ExecutorCommand.unwrap(workspaceOf(executors, place), bound), bound, during }
}

/** Working directory of commands. A host that replaces a sandbox has no `/workspace`, and refuses commands in it. */
const workspaceOf = ({ host }: Executors["Service"], place: "sandbox" | "host"): string =>
  place === "host" && Option.isSome(host) ? host.value.workspace : SandboxPlace.target

/** Whether the engine is absent. A slow or failing engine is not: overloading it must not lead an agent to the host. */
const isEngineGone = (error: SandboxError | SessionRefused): boolean =>
  error instanceof SandboxError &&
  error.reason._tag === "RuntimeUnavailable" &&
  error.reason.isAbsent === true

const idOf = ({ runId }: { readonly runId?: RunId | undefined }) => (runId === undefined ? {} : { runId })

const refusal = (detail: string): SandboxError =>
  new SandboxError({
    reason: new CommandRefused({ detail, remedy: "Ask the operator of this host, or try again later" })
  })
