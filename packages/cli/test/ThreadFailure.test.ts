/** Refusals of threads as those of commands: their exit codes, and what to do. */
import * as ThreadError from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { assert, describe, it } from "@effect/vitest"
import { exitCode } from "../src/ExitCode.ts"
import * as ThreadFailure from "../src/ThreadFailure.ts"

describe("a refusal of a thread", () => {
  for (const [error, code, remedy] of [
    [new ThreadError.ThreadBusy({ retrySeconds: 30 }), 69, "Wait until that has ended, and try again"],
    [new ThreadError.ThreadLost(), 69, "Try again"],
    [
      new ThreadError.ThreadHostFull({ limit: "share", bytesMax: 1 }),
      69,
      "Remove or reset threads of this account, or ask the operator of the host for more"
    ],
    [new ThreadError.ThreadNotFound(), 66, "List them with: cogni-sandbox threads list"],
    [
      new ThreadError.ThreadsUnavailable({ detail: "is at /srv/St. Mary", remedy: "Start it. Then wait" }),
      69,
      "Start it. Then wait"
    ],
    [
      new ThreadError.ThreadFilesFailed({
        detail: "the directory (/srv/St. Mary) is broken. Check its disk"
      }),
      69,
      "Check its disk"
    ]
  ] as const) {
    it(`has its exit code and its whole remedy: ${error._tag}`, () => {
      const refused = ThreadFailure.refusalOf(error)
      assert.deepStrictEqual([exitCode[refused.exit], refused.remedy], [code, remedy])
    })
  }

  it("does not speak of sending a turn", () => {
    for (const error of [
      new ThreadError.ThreadBusy({ retrySeconds: 30 }),
      new ThreadError.ThreadFilesLost({ host: "a", isHere: false }),
      new ThreadError.ThreadLost()
    ])
      assert.notMatch(ThreadFailure.refusalOf(error).message, /send (?:it|this one|the turn)|this turn/iu)
  })
})
