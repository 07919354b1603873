/**
 * How a container ended, believed only when a second answer of the engine confirms it.
 *
 * A wait can return because the engine stops, and an attach stream can end while the container runs; an inspect that
 * finds it not running has the word. A signal that came through the engine and was not ours is said as that.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxError"
import { Duration, Effect, Schedule } from "effect"
import type { DockerApi, Inspected } from "../../DockerApi.ts"

/** After the last output an exit comes within milliseconds; from here on the engine is asked. */
const exitAfterOutputSecondsMax = 2

/** How long an engine that went away is waited for before its containers are given up. */
const engineAwaySecondsMax = 15

const removed = new ContainerFailed({
  operation: "wait",
  detail: "the container was removed by somebody else while it ran",
  remedy: "Leave containers with our labels alone; see what else removes containers on this engine"
})

const killed = new ContainerFailed({
  operation: "wait",
  detail: "the container was killed by somebody else, or by the engine as it stopped",
  remedy: "See who stops containers on this engine (its log), then try again"
})

/** The state of a container that has really ended. */
export const state = (
  api: DockerApi["Service"],
  id: string,
  seen: { readonly waited: Effect.Effect<void, ContainerError>; readonly outputEnded: Effect.Effect<void> }
): Effect.Effect<Inspected["State"], ContainerError> =>
  Effect.raceFirst(
    // Where a wait breaks off, output was lost as well: an exit that is told later is not the agent's whole story.
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

/** Somebody else's signal ended it; the engine's own absence is said first. */
export const killedFromOutside = (api: DockerApi["Service"]): Effect.Effect<never, ContainerError> =>
  api.ping.pipe(Effect.timeoutOption(Duration.seconds(2)), Effect.andThen(Effect.fail(killed)))
