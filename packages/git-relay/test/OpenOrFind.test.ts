/** One pull request, whatever gets lost on the way. */
import { assert, describe, it } from "@effect/vitest"
import { PullRequestFailed } from "@cogni/sandbox-git-relay/GitRelayError"
import type {
  OpenPullRequest,
  PullRequests,
  PullRequestTarget
} from "@cogni/sandbox-git-relay/forge/PullRequests"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { lookAgainSecondsMax, openOrFind, openSecondsMax } from "../src/internal/forge/OpenOrFind.ts"

const target: PullRequestTarget = {
  url: "https://git.example.com/a/b",
  baseBranch: "main",
  branch: "sandbox/x1"
}
const text = { title: "Repair", body: "What was broken", draft: true }
const theirs: OpenPullRequest = { url: "https://git.example.com/a/b/pull/1", number: 1 }

const failure = (detail: string) => new PullRequestFailed({ detail, remedy: "Try again", isRetryable: true })

type Find = Effect.Effect<OpenPullRequest | undefined, PullRequestFailed>

/** A forge that answers in this order, and what it was asked. */
const forge = (answers: {
  readonly find: ReadonlyArray<Find>
  readonly create?: ReturnType<PullRequests["Service"]["create"]>
}) => {
  const asked: Array<string> = []
  const finds = [...answers.find]
  const service: PullRequests["Service"] = {
    find: (at) =>
      Effect.suspend(() => {
        assert.deepStrictEqual(at, target)
        asked.push("find")
        return finds.shift() ?? Effect.die("asked once too often")
      }),
    create: (at, said) =>
      Effect.suspend(() => {
        assert.deepStrictEqual([at, said], [target, text])
        asked.push("create")
        return answers.create ?? Effect.die("asked to open one")
      })
  }
  return { asked, open: openOrFind(service, target, text) }
}

const none = Effect.succeed(undefined)

describe("openOrFind", () => {
  it.effect("takes the one that is open, and opens none", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [Effect.succeed(theirs)] })
      assert.deepStrictEqual(yield* open, { ...theirs, existing: true })
      assert.deepStrictEqual(asked, ["find"])
    })
  )

  it.effect("opens one where there is none", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none], create: Effect.succeed(theirs) })
      assert.deepStrictEqual(yield* open, { ...theirs, existing: false })
      assert.deepStrictEqual(asked, ["find", "create"])
    })
  )

  it.effect("where the answer was lost, it is found", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({
        find: [none, Effect.succeed(theirs)],
        create: Effect.fail(failure("the connection broke"))
      })
      assert.deepStrictEqual(yield* open, { ...theirs, existing: false })
      assert.deepStrictEqual(asked, ["find", "create", "find"])
    })
  )

  it.effect.each([
    ["there is none", none],
    ["that fails as well", Effect.fail(failure("nor can one look"))]
  ] as const)("looks once more, and when %s says what went wrong first", ([, after]) =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none, after], create: Effect.fail(failure("it was refused")) })
      assert.strictEqual((yield* Effect.flip(open)).detail, "it was refused")
      assert.deepStrictEqual(asked, ["find", "create", "find"])
    })
  )

  it.effect("where one cannot look, none is opened", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [Effect.fail(failure("nobody answers"))] })
      assert.strictEqual((yield* Effect.flip(open)).detail, "nobody answers")
      assert.deepStrictEqual(asked, ["find"])
    })
  )

  it.effect("done again, it begins again", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({
        find: [none, none, Effect.fail(failure("nobody answers"))],
        create: Effect.fail(failure("it was refused"))
      })
      yield* Effect.flip(open)
      assert.strictEqual((yield* Effect.flip(open)).detail, "nobody answers")
      assert.deepStrictEqual(asked, ["find", "create", "find", "find"])
    })
  )

  it.effect("an opening that never ends is given up, and looked for", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none, Effect.succeed(theirs)], create: Effect.never })
      const fiber = yield* Effect.forkChild(open)
      yield* TestClock.adjust(`${openSecondsMax} seconds`)
      assert.deepStrictEqual(yield* Fiber.join(fiber), { ...theirs, existing: false })
      assert.deepStrictEqual(asked, ["find", "create", "find"])
    })
  )

  it.effect("a forge that never answers is waited for a minute, and no longer", () =>
    Effect.gen(function* () {
      const { open } = forge({ find: [none, Effect.never], create: Effect.never })
      const fiber = yield* Effect.forkChild(Effect.flip(open))
      assert.strictEqual(openSecondsMax + lookAgainSecondsMax, 60)
      yield* TestClock.adjust("60 seconds")
      const error = yield* Fiber.join(fiber)
      assert.isTrue(error.isRetryable)
      assert.include(error.message, `within ${openSecondsMax} s`)
    })
  )
})
