/** Tasks that require a patch. The tests of the graph `sandbox:task` cover everything else. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as TaskRun from "@cogni/sandbox-graph-provider/TaskRun"
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { world } from "./TaskWorld.ts"

describe("TaskRun.live", () => {
  it.effect("calls no model if a patch is required and cannot be made", () => {
    const asked: Array<unknown> = []
    const model = ChatModel.layerMemory((request) => {
      asked.push(request)
      return ChatModel.says("Done.")
    })
    const live = (id: string, requiresPatch: boolean) =>
      TaskRun.live({
        ...TaskRun.plan(
          {
            runId: RunId.make(id),
            image: "cogni/runtime:1",
            llm: { model: "m", identity: { billingAccountId: "a" } }
          },
          {}
        ),
        messages: [{ role: "user", content: "do it" }],
        requiresPatch,
        see: () => Effect.void
      })
    return Effect.gen(function* () {
      const error = yield* Effect.flip(live("run-000000000001", true))
      assert.match(
        error.message,
        /cannot be used for this task: the patch could not be made: exit code 128\. Exclude .*\.gitignore/u
      )
      assert.deepStrictEqual(asked, [])
      const { end, patch } = yield* live("run-000000000002", false)
      assert.strictEqual(end.outcome, "finished")
      assert.property(patch, "problem")
    }).pipe(Effect.provide([model, world({ program: () => Effect.succeed(128) }).layer]))
  })
})
