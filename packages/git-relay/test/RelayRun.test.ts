/** The outcome of a run's commits, however the run ends. */
import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import { GitRelayError, RelayFailed } from "@cogni/sandbox-git-relay/GitRelayError"
import * as MemoryGitRelay from "../src/MemoryGitRelay.ts"
import { branchOf } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import { Cause, Deferred, Effect, Exit, Fiber, Schema } from "effect"

const files = { "a.txt": "a\n" }

/** The fields of a record without its branch and its statement, which no schema can generate. */
const { branch: _branch, statement: _statement, ...sayable } = DeliveryRecord.DeliveryRecord.fields
const Said = Schema.Struct({ ...sayable, runId: RunId.RunId })

/** Runs once with a clone, and returns what is kept of it afterwards. */
const lived = Effect.fnUntraced(function* <A extends RelayRun.Used, E, R>(
  use: (clone: Clone, began: Effect.Effect<void>) => Effect.Effect<A, E, R>,
  more: Partial<RelayRun.RelayRunRequest> = {}
) {
  const git = yield* MemoryGitRelay.MemoryGit
  const relay = yield* GitRelay
  const url = yield* git.origin("acme/app", files)
  const runId = yield* RunId.generate
  const exit = yield* Effect.exit(
    RelayRun.around({ runId, url, deliver: "push", uncommittedMessage: "left", ...more }, use)
  )
  const kept = (yield* relay.kept).filter((one) => one.runId === runId)
  return { exit, kept, runId, url, branch: yield* git.branchAt(url, `sandbox/${runId}`) }
})

const commits = (clone: Clone, path = "b.txt") =>
  Effect.flatMap(MemoryGitRelay.MemoryGit, (git) => git.commit(clone, { [path]: "b\n" }))

const deliveryOf = <A, E>(exit: Exit.Exit<{ readonly delivery: A }, E>): A =>
  Exit.isSuccess(exit) ? exit.value.delivery : assert.fail("the run failed")

describe("RelayRun.around", () => {
  it.effect("pushes a run that succeeded, with its statement, and keeps nothing", () =>
    Effect.gen(function* () {
      const auditHead = { entries: 3, hash: "e".repeat(64) }
      const { branch, exit, kept, runId, url } = yield* lived((clone, began) =>
        Effect.andThen(began, Effect.as(commits(clone), { succeeded: true, auditHead }))
      )
      const delivery = deliveryOf(exit)
      if (delivery._tag !== "Pushed") return assert.fail(delivery._tag)
      assert.strictEqual(branch, delivery.tip)
      assert.deepStrictEqual(kept, [])
      const { statement } = delivery
      assert.deepStrictEqual(statement.subject as unknown, [
        { name: `${url}#sandbox/${runId}`, digest: { gitCommit: delivery.tip } }
      ])
      assert.deepInclude(statement.predicate, { runId, auditHead })
      assert.strictEqual(DeliveryRecord.recordOf(delivery).status, "pushed")
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("opens a pull request on request", () =>
    Effect.gen(function* () {
      const { exit, kept } = yield* lived((clone) => Effect.as(commits(clone), { succeeded: true }), {
        createPr: true
      })
      const delivery = deliveryOf(exit)
      assert.isTrue(delivery._tag === "Pushed" && delivery.pullRequest?.number === 1)
      assert.deepStrictEqual(kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("pushes nothing without commits", () =>
    Effect.gen(function* () {
      const { branch, exit, kept } = yield* lived(() => Effect.succeed({ succeeded: true }))
      assert.strictEqual(deliveryOf(exit)._tag, "Skipped")
      assert.isUndefined(branch)
      assert.deepStrictEqual(kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps the work of a run that did not succeed, committed or not, and does not push it", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const leaves = (clone: Clone) => git.leave(clone, { "left.txt": "x\n" })
      for (const work of [(clone: Clone) => Effect.asVoid(commits(clone)), leaves]) {
        const { branch, exit, kept } = yield* lived((clone) => Effect.as(work(clone), { succeeded: false }))
        assert.strictEqual(deliveryOf(exit)._tag, "Kept")
        assert.isUndefined(branch)
        assert.lengthOf(kept, 1)
      }
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps commits that the policy refuses, and still returns the result of the run", () =>
    Effect.gen(function* () {
      const { exit, kept } = yield* lived((clone) =>
        Effect.as(commits(clone, ".github/workflows/x.yml"), { succeeded: true, answer: 42 })
      )
      if (!Exit.isSuccess(exit)) return assert.fail("the run failed")
      const { delivery, value } = exit.value
      assert.strictEqual(value.answer, 42)
      assert.isTrue(delivery._tag === "Failed" && delivery.error.reason._tag === "PolicyRefused")
      assert.lengthOf(kept, 1)
      const { keptAt, status } = DeliveryRecord.recordOf(delivery)
      assert.deepStrictEqual([status, keptAt], ["failed", kept[0]?.directory])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps commits that an origin rejects, and pushes them on a retry", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const { branch, exit, kept, runId, url } = yield* lived((clone) =>
        git
          .trouble(clone.request.url, { push: "branch_protected" })
          .pipe(Effect.andThen(commits(clone)), Effect.as({ succeeded: true }))
      )
      const delivery = deliveryOf(exit)
      assert.isTrue(delivery._tag === "Failed" && delivery.error.reason._tag === "PushRefused")
      assert.isUndefined(branch)
      assert.deepInclude(kept[0], { runId, stage: "checked", inUse: false })
      yield* git.trouble(url, {})
      const retried = yield* Effect.scoped(
        Effect.flatMap(relay.reopen(runId), (clone) => RelayRun.deliver(clone, { deliver: "push" }))
      )
      assert.strictEqual(retried._tag, "Pushed")
      assert.deepStrictEqual(yield* relay.kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps the pushed branch if the forge fails, and only opens the pull request on a retry", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const { branch, exit, kept, runId, url } = yield* lived(
        (clone) =>
          git
            .trouble(clone.request.url, { pullRequest: "it is busy" })
            .pipe(Effect.andThen(commits(clone)), Effect.as({ succeeded: true })),
        { createPr: true }
      )
      const delivery = deliveryOf(exit)
      assert.isTrue(delivery._tag === "Failed" && delivery.error.reason._tag === "PullRequestFailed")
      assert.isDefined(branch)
      assert.deepInclude(kept[0], { runId, stage: "pushed" })
      yield* git.trouble(url, {})
      const retried = yield* Effect.scoped(
        Effect.flatMap(relay.reopen(runId), (clone) => RelayRun.deliver(clone, { deliver: "push" }))
      )
      assert.isTrue(retried._tag === "Pushed" && retried.unchanged && retried.pullRequest?.number === 1)
      assert.strictEqual(DeliveryRecord.recordOf(retried).status, "unchanged")
      assert.deepStrictEqual(yield* relay.kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("runs nothing if the clone fails", () =>
    Effect.gen(function* () {
      let lives = 0
      const { exit, kept } = yield* lived(
        () =>
          Effect.sync(() => {
            lives += 1
            return { succeeded: true }
          }),
        { baseBranch: "nowhere" }
      )
      assert.isTrue(Exit.isFailure(exit))
      assert.strictEqual(lives, 0)
      assert.deepStrictEqual(kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps nothing of a run that failed and changed nothing", () =>
    Effect.gen(function* () {
      const { exit, kept } = yield* lived((_, began) => Effect.andThen(began, Effect.fail("timed out")))
      assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) === "timed out")
      assert.deepStrictEqual(kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("commits the uncommitted changes of a run that failed, but not of one that succeeded", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const leaves = (clone: Clone) => git.leave(clone, { "left.txt": "x\n" })
      const done = yield* lived((clone) => Effect.as(leaves(clone), { succeeded: true }))
      assert.strictEqual(deliveryOf(done.exit)._tag, "Skipped")
      const fails = (clone: Clone, began: Effect.Effect<void>) =>
        began.pipe(Effect.andThen(leaves(clone)), Effect.andThen(Effect.fail("out of memory")))
      assert.lengthOf((yield* lived(fails)).kept, 1)
      const unwanted = yield* lived(fails, { uncommittedMessage: undefined })
      assert.deepStrictEqual(unwanted.kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps a patch until it is discarded", () =>
    Effect.gen(function* () {
      const { branch, exit, kept } = yield* lived((clone) => Effect.as(commits(clone), { succeeded: true }), {
        deliver: "patch"
      })
      const delivery = deliveryOf(exit)
      assert.isTrue(delivery._tag === "Patched" && delivery.patch.byteLength > 0)
      assert.isUndefined(branch)
      assert.lengthOf(kept, 1)
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps nothing of a run that fails before its agent begins, and keeps one that fails later", () =>
    Effect.gen(function* () {
      const before = yield* lived((clone) => Effect.andThen(commits(clone), Effect.fail("no image")))
      assert.isTrue(Exit.isFailure(before.exit))
      assert.deepStrictEqual(before.kept, [])
      const after = yield* lived((clone, began) =>
        began.pipe(Effect.andThen(commits(clone)), Effect.andThen(Effect.fail("timed out")))
      )
      assert.isTrue(Exit.isFailure(after.exit))
      assert.isUndefined(after.branch)
      assert.deepInclude(after.kept[0], { stage: "collected", inUse: false })
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("reports what became of the work of a run that fails", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const url = yield* git.origin("acme/app", files)
      const salvaged = Effect.fnUntraced(function* (
        work: (clone: Clone) => Effect.Effect<unknown, never, MemoryGitRelay.MemoryGit>
      ) {
        const heard: Array<DeliveryRecord.DeliveryRecord> = []
        const runId = yield* RunId.generate
        const exit = yield* Effect.exit(
          RelayRun.around(
            { runId, url, deliver: "push" },
            (clone, began) =>
              began.pipe(Effect.andThen(work(clone)), Effect.andThen(Effect.fail("out of memory"))),
            (delivery) => Effect.sync(() => void heard.push(DeliveryRecord.recordOf(delivery)))
          )
        )
        assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) === "out of memory")
        return heard
      })
      const [kept] = yield* salvaged(commits)
      assert.strictEqual(kept?.status, "kept")
      assert.isDefined(kept?.tip)
      assert.isDefined(kept?.keptAt)
      assert.deepStrictEqual(
        (yield* salvaged(() => Effect.void)).map(({ status }) => status),
        ["skipped"]
      )
      const relay = yield* GitRelay
      const reason = new RelayFailed({ detail: "the container failed", remedy: "Try again" })
      const collect = () => Effect.fail(new GitRelayError({ operation: "collect", reason }))
      const [failed] = yield* salvaged(commits).pipe(Effect.provideService(GitRelay, { ...relay, collect }))
      assert.strictEqual(failed?.status, "failed")
      assert.include(failed?.message, "the container failed")
      assert.isDefined(failed?.keptAt)
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect("keeps a run that is interrupted", () =>
    Effect.gen(function* () {
      const git = yield* MemoryGitRelay.MemoryGit
      const relay = yield* GitRelay
      const url = yield* git.origin("acme/app", files)
      const runId = yield* RunId.generate
      const working = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        RelayRun.around({ runId, url, deliver: "push" }, (clone, began) =>
          began.pipe(
            Effect.andThen(commits(clone)),
            Effect.andThen(Deferred.succeed(working, undefined)),
            Effect.andThen(Effect.never)
          )
        )
      )
      yield* Deferred.await(working)
      yield* Fiber.interrupt(fiber)
      assert.deepInclude((yield* relay.kept)[0], { runId, stage: "collected", inUse: false })
      const delivery = yield* Effect.scoped(
        Effect.flatMap(relay.reopen(runId), (clone) => RelayRun.deliver(clone, { deliver: "push" }))
      )
      assert.strictEqual(delivery._tag, "Pushed")
      assert.deepStrictEqual(yield* relay.kept, [])
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )
})

describe("RelayRun", () => {
  it("does not change a command that runs in the repository", () => {
    assert.deepStrictEqual(RelayRun.inRepository(["npm", "test", "--", "-x"]) as unknown, [
      "/usr/local/bin/cogni-repo",
      "--",
      "npm",
      "test",
      "--",
      "-x"
    ])
    assert.deepStrictEqual(RelayRun.inRepository(["true"], "left") as unknown, [
      "/usr/local/bin/cogni-repo",
      "--commit",
      "left",
      "--",
      "true"
    ])
  })

  it.effect("reads a record as it was written", () =>
    Effect.gen(function* () {
      const { exit } = yield* lived((clone) => Effect.as(commits(clone), { succeeded: true }), {
        createPr: true
      })
      const record = DeliveryRecord.recordOf(deliveryOf(exit))
      const codec = Schema.fromJsonString(DeliveryRecord.DeliveryRecord)
      assert.deepStrictEqual(Schema.decodeUnknownSync(codec)(Schema.encodeSync(codec)(record)), record)
      assert.isDefined(record.statement)
      assert.include(record.pullRequestUrl, "/pull/1")
    }).pipe(Effect.provide(MemoryGitRelay.layer()))
  )

  it.effect.prop("preserves a record with any values in a JSON round trip", [Said], ([{ runId, ...said }]) =>
    Effect.gen(function* () {
      const record: DeliveryRecord.DeliveryRecord = { ...said, branch: branchOf(runId) }
      const codec = Schema.fromJsonString(Schema.toCodecJson(DeliveryRecord.DeliveryRecord))
      const wire = yield* Schema.encodeEffect(codec)(record)
      assert.deepStrictEqual(yield* Schema.decodeUnknownEffect(codec)(wire), record)
    })
  )
})
