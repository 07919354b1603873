/**
 * What dead owners have left goes while a command does something else, when the engine has nothing else to do.
 *
 * Nothing of it can fail a command, or keep it from ending.
 */
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { SqlRunStore } from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, Fiber, Latch } from "effect"
import { Settings } from "./Settings.ts"

/** How long a command waits for it at its end. */
export const reapSecondsMax = 5

/** Once: containers and directories of dead owners, and their records. */
export const round = Effect.gen(function* () {
  const { stateDirectory } = yield* Settings
  const reaper = yield* DockerReaper
  const archive = yield* SqlRunStore
  const records = Effect.flatMap(FileRunStore.make({ directory: stateDirectory }).reap, (reaped) =>
    reaped.length === 0 ? Effect.void : archive.refresh(reaped)
  )
  yield* Effect.all([reaper.reap, records], { concurrency: 2, mode: "result" })
})

/** Begins when it is told to, and goes with the scope. */
export const inBackground = Effect.gen(function* () {
  const latch = yield* Latch.make()
  const fiber = yield* latch.await.pipe(Effect.andThen(round), Effect.ignore, Effect.forkScoped)
  return {
    begin: Effect.asVoid(latch.open),
    end: latch.open.pipe(
      Effect.andThen(Fiber.await(fiber)),
      Effect.timeoutOption(`${reapSecondsMax} seconds`),
      Effect.asVoid
    )
  }
})
