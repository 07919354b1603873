/**
 * What every `GitRelay` must do: the very commits to one branch and no other, once; and nothing lost until they are
 * there or nobody wants them.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, it } from "@effect/vitest"
import { Context, Effect, type Layer, Result } from "effect"
import { type Clone, type CloneRequest, GitRelay } from "../GitRelay.ts"
import type { GitRelayError } from "../GitRelayError.ts"
import { BranchName, type CommitId } from "../Refs.ts"

/** What the suite does besides the relay: an origin, and the agent that works in a clone. @category services */
export class Stage extends Context.Service<
  Stage,
  {
    /** An origin with these files on `main`, or an empty one; its URL. */
    readonly origin: (files?: Readonly<Record<string, string>>) => Effect.Effect<string>
    readonly commit: (
      clone: Clone,
      files: Readonly<Record<string, string>>,
      message: string
    ) => Effect.Effect<CommitId>
    readonly leave: (clone: Clone, files: Readonly<Record<string, string>>) => Effect.Effect<void>
    readonly branchAt: (url: string, branch: string) => Effect.Effect<CommitId | undefined>
  }
>()("@cogni/sandbox-git-relay/testing/Stage") {}

const files = { "README.md": "hello\n", "src/app.js": "run()\n" }

const request = Effect.fnUntraced(function* (more: Partial<CloneRequest> = {}) {
  const url = yield* (yield* Stage).origin(files)
  return { runId: yield* RunId.generate, url, ...more } satisfies CloneRequest
})

/** Collect, check, push. */
const sent = Effect.fnUntraced(function* (clone: Clone) {
  const relay = yield* GitRelay
  return yield* relay.push(yield* relay.check(yield* relay.collect(clone)))
})

const reasonOf = <A, R>(effect: Effect.Effect<A, GitRelayError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

const keptIds = Effect.flatMap(GitRelay, (relay) =>
  Effect.map(relay.kept, (all) => all.map(({ runId }) => runId))
)

/** @category suites */
export const suite = <E>(name: string, layer: Layer.Layer<GitRelay | Stage, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`GitRelay (${name})`, (it) => {
    it.effect("a clone has the facts of its time", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const asked = yield* request()
        const clone = yield* relay.clone(asked)
        assert.strictEqual(clone.baseBranch, "main")
        assert.strictEqual(clone.branch, `sandbox/${asked.runId}`)
        assert.strictEqual(clone.baseCommit, yield* (yield* Stage).branchAt(asked.url, "main"))
        assert.isTrue(clone.workspacePath.startsWith(clone.directory))
        yield* relay.discard(asked.runId)
      }).pipe(Effect.scoped)
    )

    it.effect("an origin without the base, or without anything, is refused, and nothing is kept of it", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const empty = yield* (yield* Stage).origin()
        for (const [asked, fault] of [
          [yield* request({ baseBranch: "nope" }), "base_missing"],
          [yield* request({ url: empty }), "empty"]
        ] as const) {
          const reason = yield* reasonOf(Effect.scoped(relay.clone(asked)))
          assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === fault, reason.message)
          assert.notInclude(yield* keptIds, asked.runId)
        }
      })
    )

    it.effect("nothing committed is nothing to push", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const clone = yield* Effect.flatMap(request(), relay.clone)
        const collected = yield* relay.collect(clone)
        assert.isUndefined(collected.tip)
        assert.strictEqual((yield* reasonOf(relay.check(collected)))._tag, "RelayFailed")
        yield* relay.discard(clone.request.runId)
      }).pipe(Effect.scoped)
    )

    it.effect("the very commit arrives, and is let go with the scope; again changes nothing", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request()
        yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            yield* stage.commit(clone, { "a.txt": "a\n" }, "add a")
            const tip = yield* stage.commit(clone, { "b.txt": "b\n" }, "add b")
            const checked = yield* relay.check(yield* relay.collect(clone))
            assert.deepInclude(checked, { tip, commits: 2, paths: 2 })
            assert.include(Buffer.from(yield* relay.patch(checked)).toString("utf8"), "Subject: ")
            assert.deepInclude(yield* relay.push(checked), { tip, unchanged: false, branch: clone.branch })
            assert.strictEqual(yield* stage.branchAt(asked.url, clone.branch), tip)
            assert.deepInclude(yield* relay.push(checked), { tip, unchanged: true })
          })
        )
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )

    it.effect("what was left uncommitted goes along where that is asked for", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const clone = yield* Effect.flatMap(request(), relay.clone)
        yield* stage.leave(clone, { "left.txt": "left\n" })
        assert.isUndefined((yield* relay.collect(clone)).tip)
        const collected = yield* relay.collect(clone, { commitLeftovers: "what was left" })
        assert.isDefined(collected.tip)
        yield* relay.push(yield* relay.check(collected))
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a branch that is there with something else is refused, kept, and sent under another name",
      () =>
        Effect.gen(function* () {
          const relay = yield* GitRelay
          const stage = yield* Stage
          const branch = BranchName.make("sandbox/taken")
          const first = yield* request({ branch })
          yield* Effect.scoped(
            Effect.gen(function* () {
              const clone = yield* relay.clone(first)
              yield* stage.commit(clone, { "a.txt": "a\n" }, "first")
              yield* sent(clone)
            })
          )
          const before = yield* stage.branchAt(first.url, branch)
          const second = { ...(yield* request()), url: first.url, branch }
          const refused = yield* Effect.scoped(
            Effect.gen(function* () {
              const clone = yield* relay.clone(second)
              yield* stage.commit(clone, { "b.txt": "b\n" }, "second")
              return yield* reasonOf(sent(clone))
            })
          )
          assert.isTrue(refused._tag === "PushRefused" && refused.fault === "branch_exists", refused.message)
          assert.strictEqual(yield* stage.branchAt(first.url, branch), before)
          assert.include(yield* keptIds, second.runId)
          yield* Effect.scoped(
            Effect.flatMap(relay.reopen(second.runId, { branch: BranchName.make("sandbox/other") }), sent)
          )
          assert.isDefined(yield* stage.branchAt(first.url, "sandbox/other"))
          assert.notInclude(yield* keptIds, second.runId)
        })
    )

    it.effect("what the policy refuses is named, kept, and dropped when nobody wants it", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request()
        const [reason, tip] = yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            const bad = yield* stage.commit(clone, { ".github/workflows/x.yml": "on: push\n" }, "a workflow")
            return [yield* reasonOf(sent(clone)), bad] as const
          })
        )
        if (reason._tag !== "PolicyRefused") return assert.fail(reason.message)
        assert.deepInclude(reason.violations[0], {
          rule: "protected-path",
          commit: tip,
          path: ".github/workflows/x.yml"
        })
        assert.isUndefined(yield* stage.branchAt(asked.url, `sandbox/${asked.runId}`))
        const kept = (yield* relay.kept).find(({ runId }) => runId === asked.runId)
        assert.deepInclude(kept, { stage: "collected", inUse: false })
        yield* relay.discard(asked.runId)
        assert.strictEqual((yield* reasonOf(Effect.scoped(relay.reopen(asked.runId))))._tag, "NotKept")
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )

    it.effect("a run has one clone at a time", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const asked = yield* request()
        yield* relay.clone(asked)
        const again = yield* Effect.result(Effect.scoped(relay.clone(asked)))
        assert.isTrue(Result.isFailure(again) && again.failure.reason._tag === "NotKept")
        assert.strictEqual((yield* reasonOf(Effect.scoped(relay.reopen(asked.runId))))._tag, "NotKept")
        const kept = (yield* relay.kept).find(({ runId }) => runId === asked.runId)
        assert.isTrue(kept?.inUse)
        yield* relay.discard(asked.runId)
      }).pipe(Effect.scoped)
    )

    it.effect("an agent that was left alone by its host is taken up again", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request()
        const tip = yield* Effect.scoped(
          Effect.flatMap(relay.clone(asked), (clone) => stage.commit(clone, { "a.txt": "a\n" }, "work"))
        )
        assert.include(yield* keptIds, asked.runId)
        const { tip: arrived } = yield* Effect.scoped(Effect.flatMap(relay.reopen(asked.runId), sent))
        assert.strictEqual(arrived, tip)
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )
  })
