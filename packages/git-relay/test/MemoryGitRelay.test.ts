/** The in-memory relay fulfills the contract of the real one, and fails as a test requests. */
import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import * as MemoryGitRelay from "../src/MemoryGitRelay.ts"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import * as GitRelayContract from "./GitRelayContract.ts"
import { Effect, Layer } from "effect"

const stage = Layer.effect(
  GitRelayContract.Stage,
  Effect.map(MemoryGitRelay.MemoryGit, (git) =>
    GitRelayContract.Stage.of({
      ...git,
      origin: (files) => git.origin(crypto.randomUUID(), files),
      shut: (url, isShut) => git.trouble(url, isShut ? { push: "rejected" } : {})
    })
  )
)

GitRelayContract.suite("memory", Layer.provideMerge(stage, MemoryGitRelay.layer()))

/** A clone of a new origin, unless a URL is given. */
const cloned = Effect.fnUntraced(function* (url?: string, branch?: string) {
  const git = yield* MemoryGitRelay.MemoryGit
  const relay = yield* GitRelay
  return yield* relay.clone({
    runId: yield* RunId.generate,
    url: url ?? (yield* git.origin("acme/app", { "README.md": "hello\n" })),
    createPr: true,
    ...(branch === undefined ? {} : { branch: BranchName.make(branch) })
  })
})

const pushed = Effect.fnUntraced(function* (clone: Clone) {
  const relay = yield* GitRelay
  return yield* relay.push(yield* relay.check(yield* relay.collect(clone)))
})

describe("MemoryGitRelay", () => {
  it.effect("opens one pull request for each branch, which settles the run", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const first = yield* cloned()
      const { url } = first.request
      yield* git.commit(first, { "a.txt": "a\n" })
      const done = yield* pushed(first)
      assert.deepStrictEqual(
        (yield* relay.kept).map(({ stage }) => stage),
        ["pushed"]
      )
      const opened = yield* relay.openPullRequest(done)
      assert.deepStrictEqual(opened, { url: `${url}/pull/1`, number: 1, existing: false })
      assert.deepStrictEqual(yield* relay.openPullRequest(done), { ...opened, existing: true })
      const second = yield* cloned(url)
      yield* git.commit(second, { "b.txt": "b\n" })
      assert.strictEqual((yield* relay.openPullRequest(yield* pushed(second))).number, 2)
      assert.deepStrictEqual(yield* relay.kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("changes nothing for another run with the same files", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const first = yield* cloned(undefined, "sandbox/shared")
      const tip = yield* git.commit(first, { "a.txt": "a\n" }, "in some words")
      yield* pushed(first)
      const second = yield* cloned(first.request.url, "sandbox/shared")
      assert.notStrictEqual(yield* git.commit(second, { "a.txt": "a\n" }, "in others"), tip)
      assert.deepInclude(yield* pushed(second), { unchanged: true, tip })
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("fails with the requested faults until they are cleared", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const clone = yield* cloned()
      const { url } = clone.request
      yield* git.commit(clone, { "a.txt": "a\n" })
      yield* git.trouble(url, { clone: "unreachable", push: "unauthorized", pullRequest: "busy" })
      const away = yield* Effect.flip(cloned(url))
      assert.isTrue(away.reason._tag === "OriginUnavailable" && away.reason.fault === "unreachable")
      assert.isTrue(away.isRetryable)
      const { reason } = yield* Effect.flip(pushed(clone))
      assert.isTrue(reason._tag === "PushRefused" && reason.fault === "unauthorized")
      assert.isUndefined(yield* git.branchAt(url, clone.branch))
      yield* git.trouble(url, { pullRequest: "busy" })
      const done = yield* pushed(clone)
      const failed = yield* Effect.flip(relay.openPullRequest(done))
      assert.deepInclude(failed.reason, { _tag: "PullRequestFailed", detail: "busy" })
      yield* git.trouble(url, {})
      assert.strictEqual((yield* relay.openPullRequest(done)).number, 1)
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("applies the given policies, and no patches", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const clone = yield* cloned()
      yield* git.commit(clone, { "a.txt": "a\n" })
      yield* git.commit(clone, { "b.txt": "b\n" })
      const { reason } = yield* Effect.flip(pushed(clone))
      assert.isTrue(reason._tag === "PolicyRefused" && reason.violations[0]?.rule === "commits")
      assert.strictEqual((yield* Effect.flip(relay.apply(clone, []))).reason._tag, "PatchRefused")
    }).pipe(
      Effect.provide(
        MemoryGitRelay.layer({
          policies: { ...CommitPolicy.defaults, default: { ...CommitPolicy.defaultPolicy, commitsMax: 1 } }
        })
      )
    )
  )
})
