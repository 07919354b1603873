/**
 * Gives a container that waited the name of its run, while that run is going on.
 *
 * The name only shows people which run a container belongs to, and keeps a second container of the same run out. So the
 * run goes on if the engine is slow or fails, and it ends only if another container has the name.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { nameInUse } from "@cogni/sandbox-core/WaitingSandbox"
import { Effect, Schedule } from "effect"
import type { DockerApi } from "../../DockerApi.ts"

/**
 * Time for the program of a run before the engine renames its container. Its first output took 3 ms longer while the
 * engine did that.
 */
export const aloneMillis = 30

/** Attempts after the first, with pauses of 1, 2, 4 … seconds between them. */
const retriesMax = 6

type Api = Pick<DockerApi["Service"], "inspect" | "rename">

/**
 * Renames a container, after {@link aloneMillis}. Calls `fail` if another one has the name, and logs a warning if the
 * engine never does it.
 */
export const give = (
  api: Api,
  {
    fail,
    id,
    name
  }: {
    readonly id: string
    readonly name: string
    readonly fail: (error: ContainerError) => Effect.Effect<void>
  }
): Effect.Effect<void> =>
  // The request is made after the pause too: while the program starts, it would take the processor from it.
  Effect.suspend(() => api.rename(id, name)).pipe(
    Effect.catch((error) =>
      // A request without an answer may have been carried out.
      Effect.flatMap(api.inspect(name), (holder) =>
        holder === undefined ? Effect.fail(error) : holder.Id === id ? Effect.void : fail(nameInUse(name))
      )
    ),
    Effect.retry({ schedule: Schedule.exponential("1 second"), times: retriesMax }),
    Effect.delay(aloneMillis),
    Effect.catch(({ message }) =>
      Effect.logWarning(`the container of a run keeps the name that it had while it waited: ${message}`)
    )
  )
