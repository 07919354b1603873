/** Directories that chats leave: which are over, and which are in use. */
import { assert, describe, it } from "@effect/vitest"
import * as ChatRemains from "../src/ChatRemains.ts"
import * as Records from "../src/Records.ts"
import * as Settings from "../src/Settings.ts"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer } from "effect"
import { TestClock } from "effect/testing"
import { join } from "node:path"

const digest = (letter: string) => letter.repeat(32)

const world = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const stateDirectory = yield* fs.makeTempDirectoryScoped()
  const settings = yield* Settings.Settings.pipe(
    Effect.provide(Settings.layer({ COGNI_STATE_DIR: stateDirectory }))
  )
  return { fs, settings, stateDirectory }
})

const scoped = <A, E>(effect: Effect.Effect<A, E, FileSystem.FileSystem>) =>
  effect.pipe(Effect.provide(Layer.fresh(NodeServices.layer)))

describe("ChatRemains", () => {
  it.effect("lists the sessions that no run is using, and removes them with their content", () =>
    Effect.gen(function* () {
      const { fs, settings, stateDirectory } = yield* world
      assert.deepStrictEqual(yield* ChatRemains.sessions(settings), [])
      const sessions = join(stateDirectory, "sessions")
      for (const letter of ["a", "b"])
        yield* fs.makeDirectory(join(sessions, digest(letter), "deep"), { recursive: true })
      yield* fs.makeDirectory(join(sessions, "not-a-session"))
      const path = join(sessions, digest("b"))
      const spec = yield* SpecDecoder.decodeOpen({
        image: "i",
        workspace: { type: "directory", path }
      })
      yield* Records.files(settings).store.open(RunId.RunId.make("run-in-use-0001"), spec)
      const found = yield* ChatRemains.sessions(settings)
      assert.deepStrictEqual(found, [join(sessions, digest("a"))])
      assert.deepStrictEqual(yield* ChatRemains.remove(found), found)
      assert.sameMembers(yield* fs.readDirectory(sessions), [digest("b"), "not-a-session"])
    }).pipe(Effect.scoped, scoped)
  )

  it.effect("lists the audits of sessions on the host a day after their last change", () =>
    Effect.gen(function* () {
      const { fs, settings, stateDirectory } = yield* world
      const audits = join(stateDirectory, "host-sessions")
      for (const [runId, seconds] of [
        ["run-over-00001", 0],
        ["run-recent-001", 10_000]
      ] as const) {
        const own = join(audits, runId)
        yield* fs.makeDirectory(join(own, "audit"), { recursive: true })
        yield* fs.writeFileString(join(own, "audit", "audit.jsonl"), "")
        for (const name of ["audit/audit.jsonl", "audit", "."])
          yield* fs.utimes(join(own, name), seconds, seconds)
      }
      yield* TestClock.setTime(90_001 * 1000)
      assert.deepStrictEqual(yield* ChatRemains.audits(settings), [join(audits, "run-over-00001")])
    }).pipe(Effect.scoped, scoped)
  )
})
