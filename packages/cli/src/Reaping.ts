/**
 * Removes orphaned resources in the background, while the engine is idle.
 *
 * It never fails a command, and never prevents it from ending.
 */
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import { SqlRunStore } from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, Fiber, Latch } from "effect"
import * as Records from "./Records.ts"
import { Settings } from "./Settings.ts"

/** Longest time that a command waits for the removal at its end. */
const reapSecondsMax = 5

/** Removes directories of dead owners once, and adds outcome and usage to their records. */
export const records = Effect.gen(function* () {
  const settings = yield* Settings
  const runs = yield* SqlRunStore
  const reaped = yield* Records.files(settings).reap
  if (reaped.length > 0) yield* runs.refresh(reaped)
})

/** Removes containers and directories of dead owners once, and updates their records. */
export const round = Effect.gen(function* () {
  const reaper = yield* DockerReaper
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
