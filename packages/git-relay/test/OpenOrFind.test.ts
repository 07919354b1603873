/** One pull request, even if responses are lost. */
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

/** A forge that gives these answers in order, and records its requests. */
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
  it.effect("returns the open pull request, and opens no other", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [Effect.succeed(theirs)] })
      assert.deepStrictEqual(yield* open, { ...theirs, existing: true })
      assert.deepStrictEqual(asked, ["find"])
    })
  )

  it.effect("opens a pull request if none is open", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none], create: Effect.succeed(theirs) })
      assert.deepStrictEqual(yield* open, { ...theirs, existing: false })
      assert.deepStrictEqual(asked, ["find", "create"])
    })
  )

  it.effect("finds the pull request if the response to its creation was lost", () =>
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
    ["finds none", none],
    ["fails as well", Effect.fail(failure("nor can one look"))]
  ] as const)("reports the first error if a second search %s", ([, after]) =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none, after], create: Effect.fail(failure("it was refused")) })
      assert.strictEqual((yield* Effect.flip(open)).detail, "it was refused")
      assert.deepStrictEqual(asked, ["find", "create", "find"])
    })
  )

  it.effect("opens no pull request if the search fails", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [Effect.fail(failure("nobody answers"))] })
      assert.strictEqual((yield* Effect.flip(open)).detail, "nobody answers")
      assert.deepStrictEqual(asked, ["find"])
    })
  )

  it.effect("starts again from the beginning when it is called again", () =>
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

  it.effect("stops waiting for a creation that never ends, and searches for its pull request", () =>
    Effect.gen(function* () {
      const { asked, open } = forge({ find: [none, Effect.succeed(theirs)], create: Effect.never })
      const fiber = yield* Effect.forkChild(open)
      yield* TestClock.adjust(`${openSecondsMax} seconds`)
      assert.deepStrictEqual(yield* Fiber.join(fiber), { ...theirs, existing: false })
      assert.deepStrictEqual(asked, ["find", "create", "find"])
    })
  )

  it.effect("waits at most one minute for a forge that never answers", () =>
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
