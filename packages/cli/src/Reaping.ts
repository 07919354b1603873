/**
 * Removes orphaned resources in the background, while the engine is idle.
 *
 * It never fails a command, and never prevents it from ending.
 */
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { SqlRunStore } from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, Fiber, Latch } from "effect"
import { Settings } from "./Settings.ts"

/** Longest time that a command waits for the removal at its end. */
export const reapSecondsMax = 5

/** Removes containers and directories of dead owners once, and updates their records. */
export const round = Effect.gen(function* () {
  const { stateDirectory } = yield* Settings
  const reaper = yield* DockerReaper
  const runs = yield* SqlRunStore
  const records = Effect.flatMap(FileRunStore.make({ directory: stateDirectory }).reap, (reaped) =>
    reaped.length === 0 ? Effect.void : runs.refresh(reaped)
  )
  yield* Effect.all([reaper.reap, records], { concurrency: 2, mode: "result" })
})

/** Runs one round in the scope: `begin` starts it, and `end` waits for it. */
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
