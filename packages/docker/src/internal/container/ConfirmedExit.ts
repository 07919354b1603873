/**
 * The exit of a container, confirmed by an inspect.
 *
 * A wait can return because the engine stops, and an attach stream can end while the container runs, so only an inspect
 * that finds the container not running counts. A signal that another client sent through the engine is an error.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { Duration, Effect, Schedule } from "effect"
import type { DockerApi, Inspected } from "../../DockerApi.ts"

/** Seconds after the last output at which the engine is asked. An exit normally arrives within milliseconds. */
const exitAfterOutputSecondsMax = 2

/** Seconds to wait for an engine that went away before its containers are given up. */
const engineAwaySecondsMax = 15

const removed = new ContainerFailed({
  operation: "wait",
  detail: "the container was removed by another program while it ran",
  remedy: "Do not remove containers with our labels; check which program removes containers on this engine"
})

const killed = new ContainerFailed({
  operation: "wait",
  detail: "the container was killed by another program, or by the engine as it stopped",
  remedy: "Check in the engine's log what stops containers, then try again"
})

/** Waits for the end of a container, and returns its confirmed state. */
export const state = (
  api: DockerApi["Service"],
  id: string,
  seen: { readonly waited: Effect.Effect<void, ContainerError>; readonly outputEnded: Effect.Effect<void> }
): Effect.Effect<Inspected["State"], ContainerError> =>
  Effect.raceFirst(
    // If the engine went away, output was lost too: the run fails even if an exit is reported later.
    seen.waited.pipe(
      Effect.catchIf(
        ({ _tag }) => _tag !== "RuntimeUnavailable",
        () => Effect.void
      )
    ),
    Effect.andThen(seen.outputEnded, Effect.sleep(Duration.seconds(exitAfterOutputSecondsMax)))
  ).pipe(
    Effect.andThen(
      api.inspect(id).pipe(
        Effect.retry({
          while: (error) => error._tag === "RuntimeUnavailable",
          schedule: Schedule.spaced("250 millis"),
          times: engineAwaySecondsMax * 4
        }),
        Effect.flatMap((found) => (found === undefined ? Effect.fail(removed) : Effect.succeed(found.State))),
        Effect.repeat({ schedule: Schedule.spaced("200 millis"), while: ({ Running }) => Running })
      )
    )
  )

/** Fails because a signal from outside ended the container, or because the engine is unavailable. */
export const killedFromOutside = (api: DockerApi["Service"]): Effect.Effect<never, ContainerError> =>
  api.ping.pipe(Effect.timeoutOption(Duration.seconds(2)), Effect.andThen(Effect.fail(killed)))
