/** Reports about the commits of a run on a repository that has no result. */
import { assert, describe, it } from "@effect/vitest"
import * as RepoRun from "../src/RepoRun.ts"
import * as Output from "../src/Output.ts"
import * as Progress from "../src/Progress.ts"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as MemoryGitRelay from "@cogni/sandbox-git-relay/MemoryGitRelay"
import type { Delivery } from "@cogni/sandbox-git-relay/DeliveryRecord"
import { Deferred, Effect, Fiber, Layer } from "effect"

describe("RepoRun", () => {
  it.effect("says and records where the commits of an interrupted run are, also with --quiet", () => {
    const memory = Output.makeMemory()
    return Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const store = yield* RunStore.RunStore
      const runId = yield* RunId.generate
      yield* store.open(runId, yield* SpecDecoder.decode({ image: "i", argv: ["a"] }))
      const url = yield* git.origin("acme/app", { "a.txt": "a\n" })
      const progress = yield* Progress.make({ quiet: true })
      const working = yield* Deferred.make<void>()
      const salvaged: Array<Delivery> = []
      const live = RepoRun.inClone({ runId, url, deliver: "push" }, undefined, progress, (delivery) => {
        salvaged.push(delivery)
      })
      const fiber = yield* Effect.forkChild(
        live([], (_place, began) =>
          began.pipe(
            Effect.andThen(git.commit({ request: { runId } } as never, { "b.txt": "b\n" })),
            Effect.andThen(Deferred.succeed(working, undefined)),
            Effect.andThen(Effect.never)
          )
        )
      )
      yield* Deferred.await(working)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(
        salvaged.map(({ _tag }) => _tag),
        ["Kept"]
      )
      assert.include(memory.said.stderr, `To deliver them: cogni-sandbox relay retry ${runId}`)
      const record = yield* store.get(runId)
      assert.containSubset(record?.annotations, { relay: { status: "kept" } })
    }).pipe(
      Effect.scoped,
      Effect.provide(Layer.mergeAll(MemoryGitRelay.layer(), RunStore.layerMemory, memory.layer))
    )
  })
})
