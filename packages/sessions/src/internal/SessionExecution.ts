/**
 * The executor of one session, for as long as the session lives: behind it is, for each message, a sandbox or the host.
 *
 * Which it is, is settled when something of a message is first executed, and holds to its end, so that no message works
 * on two places. The host stands in for a sandbox only where the configuration says so and the engine is not there: not
 * for a sandbox that is refused, is not held as it must be, or breaks while it is used.
 */
import * as Executor from "@cogni/sandbox-core/Executor"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { CommandRefused, SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { Effect, Option, Scope, Semaphore } from "effect"
import type { Executors, SessionExecutor } from "../executor/Executors.ts"
import type { SessionRefused } from "../sandbox/SandboxManager.ts"

/** Where a message was executed, or would have been. */
export interface Execution {
  readonly executor: "sandbox" | "host"
  /** The host, in place of a sandbox that could not be had. */
  readonly fallback: boolean
  /** What kept the sandbox from being had, where something did; commands were then refused, unless `fallback`. */
  readonly why?: string | undefined
  /** Of the sandbox, where something was executed in one. */
  readonly runId?: RunId | undefined
}

export interface SessionExecution {
  /** The same for all messages; fails outside of one. */
  readonly executor: Executor.Executor
  /** What is behind it for the message that is being answered; settled by this, where nothing has settled it. */
  readonly bound: Effect.Effect<SessionExecutor, SandboxError>
  /** For one message at a time: what it does, and where. */
  readonly during: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<readonly [A, Execution], E, R>
}

/** One message's. */
interface Binding {
  readonly scope: Scope.Scope
  executor: SessionExecutor | undefined
  execution: Execution
}

export interface Options {
  readonly key: string
  readonly agent: string
  /** Where the agent is to execute. */
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
    // Once for a message, however often it is tried.
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

  return { executor: Executor.unwrap(workspaceOf(executors, place), bound), bound, during }
}

/** Where commands begin. The host in place of a sandbox has no such directory, and refuses what is said to be in it. */
const workspaceOf = ({ host }: Executors["Service"], place: "sandbox" | "host"): string =>
  place === "host" && Option.isSome(host) ? host.value.workspace : Workspace.target

/** One that is slow or breaks off is there: what brings load upon it must not be what gets onto the host. */
const isEngineGone = (error: SandboxError | SessionRefused): boolean =>
  error instanceof SandboxError &&
  error.reason._tag === "RuntimeUnavailable" &&
  error.reason.isAbsent === true

const idOf = ({ runId }: { readonly runId?: RunId | undefined }) => (runId === undefined ? {} : { runId })

const refusal = (detail: string): SandboxError =>
  new SandboxError({
    reason: new CommandRefused({ detail, remedy: "Ask whoever runs this host, or try again later" })
  })
