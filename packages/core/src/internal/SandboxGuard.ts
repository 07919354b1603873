/**
 * Enforces the limits of an open sandbox, even while no command runs in it, and stops it when it breaks one.
 *
 * The first broken limit is reported to every command at once, then the sandbox is stopped.
 */
import { Deferred, Duration, Effect, type Scope } from "effect"
import type { Container, ContainerError } from "../ContainerRuntime.ts"
import type { LlmProxyError } from "../LlmProxy.ts"
import { type Reason } from "../SandboxError.ts"
import { ContainerFailed, type HostFailed, type Partial, type WorkspaceFailed } from "../SandboxReason.ts"
import type { Limits } from "../SpecFields.ts"
import * as AgentWatch from "./AgentWatch.ts"

/** Why a sandbox can no longer be used, given the partial result of a command. */
export type Broken = (partial: Partial) => Reason

const endedByItself = new ContainerFailed({
  operation: "exec",
  detail: "the sandbox has ended",
  remedy: "Open another; see what killed its first process"
})

const closed = new ContainerFailed({
  operation: "exec",
  detail: "the sandbox was closed",
  remedy: "Open another"
})

export const make = Effect.fnUntraced(function* (
  container: Container,
  limits: Limits,
  watched: AgentWatch.WatchedWorkspace<WorkspaceFailed | HostFailed | ContainerError> & {
    readonly failure: Effect.Effect<never, LlmProxyError>
    readonly violation: Effect.Effect<AgentWatch.HostLimit>
    /** Called once, unless the sandbox was simply closed. */
    readonly onBroken?: ((why: Broken) => Effect.Effect<void>) | undefined
  }
): Effect.fn.Return<Effect.Effect<Broken>, never, Scope.Scope> {
  const broken = yield* Deferred.make<Broken>()
  yield* Effect.raceAllFirst([
    AgentWatch.firstBroken<ContainerError | WorkspaceFailed | HostFailed>(limits, watched, watched.violation),
    watched.failure,
    Effect.map(
      container.exit,
      (exit): Broken =>
        (partial) =>
          AgentWatch.exitLimit(exit, limits, partial) ?? endedByItself
    )
  ]).pipe(
    Effect.catch((reason) =>
      Effect.succeed<Broken>((partial) => AgentWatch.withPartial<Reason>(reason, partial))
    ),
    Effect.tap((why) => watched.onBroken?.(why) ?? Effect.void),
    Effect.flatMap((why) => Deferred.succeed(broken, why)),
    Effect.andThen(container.stop(Duration.seconds(limits.stopGraceSecondsMax))),
    Effect.catch((error) => Effect.logWarning("the sandbox could not be stopped", error)),
    Effect.forkScoped
  )
  // Added last, so that it runs first: callers that wait for a command learn of the end before it happens.
  yield* Effect.addFinalizer(() => Deferred.succeed(broken, () => closed))
  return Deferred.await(broken)
})
