/**
 * The port: what refuses where nothing is behind it, and which names never pass.
 */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import {
  BaseBranch,
  BranchName,
  type Checked,
  CloneRequest,
  CommitId,
  GitRelay,
  type GitRelayError,
  layerNoop
} from "@cogni/sandbox-git-relay/GitRelay"
import { Effect, Schema } from "effect"

const request: CloneRequest = {
  runId: RunId.make("run-000000000001"),
  url: "https://git.example.com/team/project.git",
  baseBranch: "main"
}
const tip = CommitId.make("a".repeat(40))
const branch = BranchName.make("sandbox/run-000000000001")
const clone = { request, branch, baseCommit: tip, workspacePath: "/nowhere" }
const collected = { clone, tip, bundlePath: "/nowhere/run.bundle", bundleBytes: 12 }
const checked: Checked = { collected, tip, commits: 1, paths: 1 }

describe("GitRelay", () => {
  it.effect("layerNoop refuses every operation, by name, and says what to do", () =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      const refusals: ReadonlyArray<
        readonly [GitRelayError["operation"], Effect.Effect<unknown, GitRelayError>]
      > = [
        ["clone", Effect.scoped(relay.clone(request))],
        ["collect", relay.collect(clone)],
        ["check", relay.check(collected)],
        ["push", relay.push(checked)],
        [
          "openPullRequest",
          relay.openPullRequest({ branch, tip, unchanged: false }, { title: "t", body: "b" })
        ]
      ]
      for (const [operation, refused] of refusals) {
        const error = yield* Effect.flip(refused)
        assert.strictEqual(error.operation, operation)
        assert.strictEqual(error.reason._tag, "RelayUnavailable")
        assert.isFalse(error.isRetryable)
        assert.include(error.message, "Provide a GitRelay layer")
      }
    }).pipe(Effect.provide(layerNoop))
  )

  it.each([
    "main",
    "HEAD",
    "sandbox/",
    "sandbox/a..b",
    "sandbox/a.lock",
    "sandbox/$(id)",
    "sandbox/a;b",
    "sandbox/-x",
    "sandbox/a b"
  ])("a run never gets the branch %s", (name) => assert.isFalse(Schema.is(BranchName)(name)))

  it.each(["-x", "a..b", "a b", "/main", "main/", "a//b", "x.lock", "a/.b", "main\n"])(
    "%s is no base branch",
    (name) => assert.isFalse(Schema.is(BaseBranch)(name))
  )

  it.each([
    "https://token@git.example.com/a/b",
    "https://git.example.com/a/b?x=1",
    "http://git.example.com/a/b",
    "ext::sh -c id",
    "file:///etc",
    "--upload-pack=id"
  ])("%s is no origin", (url) => assert.isFalse(Schema.is(CloneRequest)({ ...request, url })))

  it("release/1.2 and sandbox/run-000000000001 are fine", () => {
    assert.isTrue(Schema.is(CloneRequest)({ ...request, baseBranch: "release/1.2", branch }))
  })
})
