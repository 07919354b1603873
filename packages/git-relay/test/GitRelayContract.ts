/**
 * Contract of every `GitRelay`: it delivers exactly the commits to one branch, once, and loses nothing until they are
 * delivered or discarded.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, it } from "@effect/vitest"
import { Context, Effect, type Layer, Result } from "effect"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone, type CloneRequest } from "@cogni/sandbox-git-relay/RelaySteps"
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { BranchName, type CommitId } from "@cogni/sandbox-git-relay/Refs"

/** Actions of the suite outside the relay: it creates origins, and works in a clone as an agent would. */
export class Stage extends Context.Service<
  Stage,
  {
    /** Creates an origin with these files on `main`, or an empty one. Returns its URL. */
    readonly origin: (files?: Readonly<Record<string, string>>) => Effect.Effect<string>
    readonly commit: (
      clone: Clone,
      files: Readonly<Record<string, string>>,
      message: string
    ) => Effect.Effect<CommitId>
    readonly leave: (clone: Clone, files: Readonly<Record<string, string>>) => Effect.Effect<void>
    readonly branchAt: (url: string, branch: string) => Effect.Effect<CommitId | undefined>
    /** Makes the origin refuse every push from now on, or accept pushes again. */
    readonly shut: (url: string, isShut: boolean) => Effect.Effect<void>
  }
>()("@cogni/sandbox-git-relay/test/Stage") {}

const files = { "README.md": "hello\n", "src/app.js": "run()\n" }

const request = Effect.fnUntraced(function* (more: Partial<CloneRequest> = {}) {
  const url = yield* (yield* Stage).origin(files)
  return { runId: yield* RunId.generate, url, ...more } satisfies CloneRequest
})

/** Collects, checks and pushes. */
const sent = Effect.fnUntraced(function* (clone: Clone) {
  const relay = yield* GitRelay
  return yield* relay.push(yield* relay.check(yield* relay.collect(clone)))
})

/** Clones, commits one file and pushes it. */
const delivered = (asked: CloneRequest, path: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const clone = yield* (yield* GitRelay).clone(asked)
      yield* (yield* Stage).commit(clone, { [path]: `${path}\n` }, `add ${path}`)
      return yield* sent(clone)
    })
  )

const reasonOf = <A, R>(effect: Effect.Effect<A, GitRelayError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

const keptIds = Effect.flatMap(GitRelay, (relay) =>
  Effect.map(relay.kept, (all) => all.map(({ runId }) => runId))
)

export const suite = <E>(name: string, layer: Layer.Layer<GitRelay | Stage, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "10 minutes" })(`GitRelay (${name})`, (it) => {
    it.effect("records base, branch and directories in a clone", () =>
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

    it.effect("starts from the named branch or from a commit of it, and never pushes to that branch", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const first = BranchName.make("sandbox/first")
        const asked = yield* request({ branch: first })
        const main = (yield* stage.branchAt(asked.url, "main"))!
        yield* delivered(asked, "a.txt")
        const upon = { ...(yield* request()), url: asked.url, baseBranch: first }
        const clone = yield* Effect.scoped(relay.clone(upon))
        const standing = (yield* stage.branchAt(asked.url, first))!
        assert.deepInclude(clone, { baseBranch: first, baseCommit: standing })
        const older = { ...upon, runId: yield* RunId.generate, baseCommit: main }
        assert.deepInclude(yield* Effect.scoped(relay.clone(older)), { baseBranch: first, baseCommit: main })
        const onto = { ...upon, runId: yield* RunId.generate, branch: first }
        for (const refused of [relay.clone(onto), relay.reopen(upon.runId, { branch: first })]) {
          const reason = yield* reasonOf(Effect.scoped(refused))
          assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === "unsupported", reason.message)
        }
        const kept = (yield* relay.kept).find(({ runId }) => runId === upon.runId)
        assert.deepInclude(kept, { stage: "cloned", inUse: false })
        for (const { runId } of [upon, older]) yield* relay.discard(runId)
      })
    )

    it.effect("does not move a branch that another run has pushed, not even forward", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const [first, second] = [BranchName.make("sandbox/first"), BranchName.make("sandbox/second")]
        const asked = yield* request({ branch: first })
        const { url } = asked
        yield* delivered(asked, "a.txt")
        yield* delivered({ ...(yield* request({ baseBranch: first, branch: second })), url }, "b.txt")
        const before = yield* stage.branchAt(url, first)
        const forwards = { ...(yield* request({ baseBranch: second, branch: first, depth: 5 })), url }
        const reason = yield* reasonOf(delivered(forwards, "c.txt"))
        assert.isTrue(reason._tag === "PushRefused" && reason.fault === "branch_exists", reason.message)
        assert.strictEqual(yield* stage.branchAt(url, first), before)
        yield* relay.discard(forwards.runId)
      })
    )

    it.effect("refuses an origin that is missing, empty or without the base, and keeps nothing", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const empty = yield* (yield* Stage).origin()
        for (const [asked, fault] of [
          [yield* request({ baseBranch: "nope" }), "base_missing"],
          [yield* request({ url: empty }), "empty"],
          [yield* request({ url: `${empty}-nowhere` }), "not_found"]
        ] as const) {
          const reason = yield* reasonOf(Effect.scoped(relay.clone(asked)))
          assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === fault, reason.message)
          assert.notInclude(yield* keptIds, asked.runId)
        }
      })
    )

    it.effect("has nothing to push if nothing is committed", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const clone = yield* Effect.flatMap(request(), relay.clone)
        const collected = yield* relay.collect(clone)
        assert.isUndefined(collected.tip)
        assert.strictEqual((yield* reasonOf(relay.check(collected)))._tag, "RelayFailed")
        yield* relay.discard(clone.request.runId)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "pushes the exact commit, changes nothing when repeated, and keeps nothing after the scope",
      () =>
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
              const patch = Buffer.from(yield* relay.patch(checked)).toString("utf8")
              const subjects = ["Subject: add a\n", "Subject: add b\n"].map((line) => patch.indexOf(line))
              assert.isTrue(0 < subjects[0]! && subjects[0]! < subjects[1]!, patch)
              assert.deepInclude(yield* relay.push(checked), { tip, unchanged: false, branch: clone.branch })
              assert.strictEqual(yield* stage.branchAt(asked.url, clone.branch), tip)
              assert.deepInclude(yield* relay.push(checked), { tip, unchanged: true })
            })
          )
          assert.notInclude(yield* keptIds, asked.runId)
        })
    )

    it.effect("commits uncommitted changes on request", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const clone = yield* Effect.flatMap(request(), relay.clone)
        yield* stage.leave(clone, { "left.txt": "left\n" })
        assert.isUndefined((yield* relay.collect(clone)).tip)
        const collected = yield* relay.collect(clone, { uncommittedMessage: "what was left" })
        assert.isDefined(collected.tip)
        const again = yield* relay.collect(clone, { uncommittedMessage: "what was left" })
        assert.strictEqual(again.tip, collected.tip)
        const checked = yield* relay.check(collected)
        assert.deepInclude(checked, { commits: 1, paths: 1 })
        yield* relay.push(checked)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "refuses a branch that exists with different content, and pushes the kept commits under another name",
      () =>
        Effect.gen(function* () {
          const relay = yield* GitRelay
          const stage = yield* Stage
          const branch = BranchName.make("sandbox/taken")
          const first = yield* request({ branch })
          yield* delivered(first, "a.txt")
          const before = yield* stage.branchAt(first.url, branch)
          const second = { ...(yield* request()), url: first.url, branch }
          const refused = yield* reasonOf(delivered(second, "b.txt"))
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

    it.effect("keeps commits that an origin rejects until it accepts them", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request()
        yield* stage.shut(asked.url, true)
        const [reason, tip] = yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            const tip = yield* stage.commit(clone, { "a.txt": "a\n" }, "work")
            return [yield* reasonOf(sent(clone)), tip] as const
          })
        )
        assert.isTrue(reason._tag === "PushRefused" && reason.fault === "rejected", reason.message)
        assert.include(reason.message, "kept at")
        assert.deepInclude(
          (yield* relay.kept).find(({ runId }) => runId === asked.runId),
          { stage: "checked", inUse: false }
        )
        yield* stage.shut(asked.url, false)
        yield* Effect.scoped(Effect.flatMap(relay.reopen(asked.runId), sent))
        assert.strictEqual(yield* stage.branchAt(asked.url, `sandbox/${asked.runId}`), tip)
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )

    it.effect("keeps a run after the push until its pull request is open, and can push more commits", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request({ createPr: true })
        yield* delivered(asked, "a.txt")
        const kept = (yield* relay.kept).find(({ runId }) => runId === asked.runId)
        assert.strictEqual(kept?.stage, "pushed")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.reopen(asked.runId, { createPr: false })
            const tip = yield* stage.commit(clone, { "b.txt": "b\n" }, "second")
            assert.deepInclude(yield* sent(clone), { tip, unchanged: false })
            assert.strictEqual(yield* stage.branchAt(asked.url, clone.branch), tip)
          })
        )
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )

    it.effect("refuses commits that contain a secret of the run, and does not repeat it", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const secret = "Zq8vK2mW5xR9tB4nL7cJ3hD6"
        const asked = yield* request({ canaries: [{ name: "planted", secret }] })
        const found = Effect.fnUntraced(function* (clone: Clone) {
          const reason = yield* reasonOf(sent(clone))
          if (reason._tag !== "PolicyRefused") return assert.fail(reason.message)
          assert.deepInclude(reason.violations[0], { rule: "known-secret", path: "notes.txt" })
          assert.notInclude(reason.message, secret)
        })
        yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            const hidden = Buffer.from(secret).toString("base64")
            yield* stage.commit(clone, { "notes.txt": `${hidden}\n` }, "notes")
            yield* stage.commit(clone, { "notes.txt": "nothing\n" }, "no notes")
            yield* found(clone)
          })
        )
        // A process that resumes the run still knows the secret.
        yield* Effect.scoped(Effect.flatMap(relay.reopen(asked.runId), found))
        yield* relay.discard(asked.runId)
      })
    )

    it.effect("reports and keeps commits that the policy refuses, until they are discarded", () =>
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

    it.effect("allows one clone of a run at a time", () =>
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

    it.effect("fails all operations on a delivered clone whose scope is closed", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request()
        const [clone, checked] = yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            yield* stage.commit(clone, { "a.txt": "a\n" }, "work")
            return [clone, (yield* sent(clone)).checked] as const
          })
        )
        for (const gone of [relay.collect(clone), relay.patch(checked), relay.push(checked)]) {
          const reason = yield* reasonOf<unknown, never>(gone)
          assert.strictEqual(reason._tag, "RelayFailed", reason.message)
        }
        // Discarding a delivered or unknown run is not an error.
        yield* relay.discard(asked.runId)
        yield* relay.discard(yield* RunId.generate)
        assert.strictEqual((yield* reasonOf(Effect.scoped(relay.reopen(asked.runId))))._tag, "NotKept")
      })
    )

    it.effect("resumes a run that its process has abandoned, including its uncommitted changes", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const stage = yield* Stage
        const asked = yield* request({ uncommittedMessage: "what was left", deliver: "patch" })
        const tip = yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.clone(asked)
            const tip = yield* stage.commit(clone, { "a.txt": "a\n" }, "work")
            yield* stage.leave(clone, { "left.txt": "left\n" })
            return tip
          })
        )
        assert.include(yield* keptIds, asked.runId)
        yield* Effect.scoped(
          Effect.gen(function* () {
            const clone = yield* relay.reopen(asked.runId)
            const { uncommittedMessage } = clone.request
            assert.strictEqual(uncommittedMessage, "what was left")
            assert.strictEqual(clone.request.deliver, "patch")
            const checked = yield* relay.check(yield* relay.collect(clone, { uncommittedMessage }))
            assert.deepInclude(checked, { commits: 2, paths: 2 })
            const patch = Buffer.from(yield* relay.patch(checked)).toString("utf8")
            for (const part of [tip, "Subject: what was left\n"]) assert.include(patch, part)
            assert.strictEqual((yield* relay.push(checked)).tip, checked.tip)
          })
        )
        assert.notInclude(yield* keptIds, asked.runId)
      })
    )
  })
