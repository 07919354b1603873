/**
 * Local repositories of every kind, on real git and real Docker: those that are read and get a branch, and those that
 * are refused, with the reason.
 */
import { assert, it } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type CloneRequest } from "@cogni/sandbox-git-relay/RelaySteps"
import * as ContainerGit from "../../packages/git-relay/src/internal/git/ContainerGit.ts"
import * as OriginContainer from "../../packages/git-relay/src/internal/origin/OriginContainer.ts"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import { Effect, Fiber, Stream } from "effect"
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import { run } from "../relay-corpus/Making.ts"
import * as Origins from "../relay-corpus/Origins.ts"

const place = Effect.map(RunHarness.Directory, (directory) => {
  const path = join(directory, crypto.randomUUID())
  mkdirSync(path)
  return path
})

/** Creates a repository with two commits on `main` and a checkout. */
const checkout = Effect.flatMap(place, (path) =>
  Effect.map(
    Effect.promise(() => Origins.prepare(path)),
    ({ repository }) => repository
  )
)

const give = (path: string, userId: number) =>
  Effect.promise(() => run(["chown", "-R", "-P", "-h", `${userId}:${userId}`, path]))

const command = (...argv: ReadonlyArray<string>) => Effect.promise(() => run(argv))

const asked = Effect.fnUntraced(function* (url: string, more: Partial<CloneRequest> = {}) {
  return { runId: yield* RelayHarness.runId, url, ...more } satisfies CloneRequest
})

/** Commits a file in the clone, as an agent would. */
const committed = (workspacePath: string, name: string) =>
  Effect.promise(async () => {
    const repository = join(workspacePath, "repo")
    const { gid, uid } = statSync(repository)
    writeFileSync(join(repository, name), `${name}\n`)
    await run(["git", "-C", repository, "add", "--all"])
    await run(["git", "-C", repository, "commit", "-qm", name])
    await run(["chown", "-R", "-P", "-h", `${uid}:${gid}`, workspacePath])
  })

/** Clones, commits and delivers. Discards the commits of a refused push. */
const delivered = Effect.fnUntraced(function* (
  request: CloneRequest,
  between: Effect.Effect<unknown> = Effect.void
) {
  const relay = yield* GitRelay
  const clone = yield* relay.clone(request)
  yield* committed(clone.workspacePath, "work.txt")
  const checked = yield* relay.check(yield* relay.collect(clone))
  yield* between
  const pushed = yield* relay.push(checked).pipe(Effect.tapError(() => relay.discard(request.runId)))
  return { clone, pushed }
}, Effect.scoped)

const refusedClone = (request: CloneRequest) =>
  Effect.flatMap(GitRelay, (relay) => Effect.flip(Effect.scoped(relay.clone(request))))

it.layer(RelayHarness.layer(), { excludeTestServices: true })("a local repository", (it) => {
  for (const userId of [0, 1234]) {
    const whose = userId === 0 ? "root" : "a user"
    it.effect(
      `a repository of ${whose} gets a branch that its owner owns, and its checkout is unchanged`,
      () =>
        Effect.gen(function* () {
          const path = yield* checkout
          const main = yield* GitOrigin.branchAt(path, "main")
          yield* give(path, userId)
          const { clone, pushed } = yield* delivered(yield* asked(path, { depth: 5 }))
          assert.strictEqual(clone.baseCommit, main)
          // New files belong to the owner, and no temporary file is left behind.
          for (const name of [`.git/refs/heads/${clone.branch}`, ".git/objects/pack"])
            assert.strictEqual(statSync(join(path, name)).uid, userId, name)
          const left = yield* command("find", join(path, ".git"), "-name", "*.lock", "-o", "-name", "tmp_*")
          assert.strictEqual(left, "")
          const others = yield* command("find", path, "-not", "-uid", String(userId))
          assert.strictEqual(others, "")
          assert.strictEqual(yield* GitOrigin.branchAt(path, clone.branch), pushed.tip)
          assert.strictEqual(yield* GitOrigin.branchAt(path, "main"), main)
          assert.strictEqual(yield* GitOrigin.git(path, "status", "--porcelain"), "")
          yield* GitOrigin.git(path, "fsck", "--full", "--strict")
        })
    )

    it.effect(
      `a repository of ${whose} refuses the push if the branch was created meanwhile, and keeps that branch`,
      () =>
        Effect.gen(function* () {
          const path = yield* checkout
          yield* give(path, userId)
          const branch = BranchName.make("sandbox/moved")
          const other = GitOrigin.git(path, "branch", branch, "main~1")
          const between = Effect.andThen(other, give(path, userId))
          const { reason } = yield* Effect.flip(delivered(yield* asked(path, { branch }), between))
          assert.isTrue(reason._tag === "PushRefused" && reason.fault === "branch_exists", reason.message)
          assert.strictEqual(
            yield* GitOrigin.branchAt(path, branch),
            yield* GitOrigin.git(path, "rev-parse", "main~1")
          )
        })
    )

    it.effect(
      `a repository of ${whose} refuses the push if a lock file exists, and names the lock file`,
      () =>
        Effect.gen(function* () {
          const path = yield* checkout
          const branch = BranchName.make("sandbox/locked")
          mkdirSync(join(path, ".git/refs/heads/sandbox"))
          writeFileSync(join(path, ".git/refs/heads/sandbox/locked.lock"), "")
          yield* give(path, userId)
          const { message, reason } = yield* Effect.flip(delivered(yield* asked(path, { branch })))
          assert.isTrue(reason._tag === "PushRefused" && reason.fault === "raced", message)
          assert.include(message, ".lock")
          assert.isUndefined(yield* GitOrigin.branchAt(path, branch))
        })
    )
  }

  it.effect("is read with packed refs, with SHA-256 and with a shallow history", () =>
    Effect.gen(function* () {
      const packed = yield* checkout
      yield* GitOrigin.git(packed, "pack-refs", "--all")
      yield* GitOrigin.git(packed, "gc", "-q")
      const wide = join(yield* place, "wide.git")
      yield* GitOrigin.seed(wide, { "a.txt": "one\n" }, { objectFormat: "sha256" })
      const shallow = join(yield* place, "shallow")
      yield* command("git", "clone", "-q", "--depth=1", `file://${packed}`, shallow)
      for (const path of [packed, wide, shallow]) {
        const { clone, pushed } = yield* delivered(yield* asked(path, { depth: 3 }))
        assert.strictEqual(yield* GitOrigin.branchAt(path, clone.branch), pushed.tip)
        yield* GitOrigin.git(path, "fsck", "--full", "--strict")
      }
    })
  )

  it.effect("is cloned at the HEAD of a linked worktree, and gets the branch", () =>
    Effect.gen(function* () {
      const path = yield* checkout
      const linked = join(yield* place, "linked")
      yield* GitOrigin.git(path, "worktree", "add", "-q", "-b", "feature", linked, "main~1")
      const { clone, pushed } = yield* delivered(yield* asked(linked))
      assert.strictEqual(clone.baseBranch, "feature")
      assert.strictEqual(clone.baseCommit as string, yield* GitOrigin.git(path, "rev-parse", "main~1"))
      assert.strictEqual(yield* GitOrigin.branchAt(path, clone.branch), pushed.tip)
    })
  )

  it.effect("is refused as a worktree if its repository does not list the worktree", () =>
    Effect.gen(function* () {
      const [path, planted] = [yield* checkout, yield* place]
      const linked = join(yield* place, "linked")
      yield* GitOrigin.git(path, "worktree", "add", "-q", "-b", "feature", linked)
      // An agent can write this file, which points to another user's repository.
      writeFileSync(join(planted, ".git"), readFileSync(join(linked, ".git")))
      const { message, reason } = yield* refusedClone(yield* asked(planted))
      assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === "unsupported", message)
      assert.include(message, "does not name it as its worktree")
    })
  )

  it.effect("is refused behind a link that another user owns", () =>
    Effect.gen(function* () {
      const [path, directory] = [yield* checkout, yield* place]
      symlinkSync(path, join(directory, "link"))
      yield* give(directory, 1000)
      const { message, reason } = yield* refusedClone(yield* asked(join(directory, "link")))
      assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === "unsupported", message)
      assert.include(message, join(directory, "link"))
    })
  )

  it.effect("refuses a branch that is checked out, or that conflicts with another branch", () =>
    Effect.gen(function* () {
      const path = yield* checkout
      const branch = BranchName.make("sandbox/open")
      yield* GitOrigin.git(path, "symbolic-ref", "HEAD", `refs/heads/${branch}`)
      const request = yield* asked(path, { baseBranch: "main", branch })
      const open = yield* Effect.flip(delivered(request))
      assert.include(open.message, "checked out")
      yield* GitOrigin.git(path, "symbolic-ref", "HEAD", "refs/heads/main")
      yield* GitOrigin.git(path, "branch", "sandbox")
      const conflict = yield* Effect.flip(delivered(yield* asked(path)))
      assert.include(conflict.message, "refs/heads/sandbox conflicts with")
      // Every name lies below sandbox/.
      assert.notInclude(conflict.message, "ReopenOptions.branch")
      yield* GitOrigin.git(path, "branch", "-m", "sandbox", "sandbox/taken/work")
      const below = yield* asked(path, { branch: BranchName.make("sandbox/taken") })
      assert.include((yield* Effect.flip(delivered(below))).message, "(ReopenOptions.branch)")
      assert.isUndefined(yield* GitOrigin.branchAt(path, branch))
    })
  )

  it.effect("refuses the push if its base was rewritten meanwhile", () =>
    Effect.gen(function* () {
      const path = yield* checkout
      const rewritten = Effect.gen(function* () {
        yield* GitOrigin.git(path, "commit", "-q", "--amend", "-m", "rewritten")
        yield* GitOrigin.git(path, "reflog", "expire", "--expire=now", "--all")
        yield* GitOrigin.git(path, "gc", "-q", "--prune=now")
      })
      const request = yield* asked(path)
      const { reason } = yield* Effect.flip(delivered(request, rewritten))
      assert.isTrue(reason._tag === "PushRefused" && reason.fault === "base_vanished", reason.message)
      assert.isUndefined(yield* GitOrigin.branchAt(path, `sandbox/${request.runId}`))
    })
  )

  it.effect(
    "a repository of root is refused if other users cannot read it or can write it, with a remedy",
    () =>
      Effect.gen(function* () {
        const closed = yield* checkout
        yield* command("chmod", "-R", "go-rwx", join(closed, ".git"))
        const unread = yield* refusedClone(yield* asked(closed))
        assert.isTrue(unread.reason._tag === "OriginUnavailable" && unread.reason.fault === "forbidden")
        assert.include(unread.message, "No container runs as root")
        const open = yield* checkout
        yield* command("chmod", "-R", "go+w", join(open, ".git"))
        const request = yield* asked(open)
        const unwritten = yield* Effect.flip(delivered(request))
        assert.isTrue(unwritten.reason._tag === "PushRefused" && unwritten.reason.fault === "forbidden")
        assert.include(unwritten.message, "others may write")
        assert.isUndefined(yield* GitOrigin.branchAt(open, `sandbox/${request.runId}`))
      })
  )

  it.effect(
    "a repository of root refuses the push if its refs are a link, and nothing is written through it",
    () =>
      Effect.gen(function* () {
        const [path, victim] = [yield* checkout, yield* place]
        const planted = Effect.sync(() => symlinkSync(victim, join(path, ".git/refs/heads/sandbox")))
        const { reason } = yield* Effect.flip(delivered(yield* asked(path), planted))
        assert.strictEqual(reason._tag, "PushRefused", reason.message)
        assert.strictEqual(yield* command("find", victim, "-type", "f"), "")
      })
  )

  it.effect("is not opened by its container if it was replaced with another directory", () =>
    Effect.gen(function* () {
      const path = join(yield* checkout, ".git")
      const runtime = yield* ContainerRuntime
      const spec = OriginContainer.readSpec(
        {
          runId: yield* RelayHarness.runId,
          image: Images.runtime,
          user: { userId: 65_534, groupId: 65_534 },
          source: path,
          identity: `${statSync(path).dev}:${statSync(join(path, "refs")).ino}`,
          worktree: "",
          runtimeSecondsMax: Pace.runSecondsMax
        },
        { depth: 1 }
      )
      const exitCode = yield* Effect.scoped(
        Effect.gen(function* () {
          const container = yield* runtime.acquire(spec)
          yield* container.start
          const bytes = yield* Stream.runFold(
            container.output,
            () => 0,
            (sum, { bytes, channel }) => sum + (channel === "stdout" ? bytes.byteLength : 0)
          )
          assert.strictEqual(bytes, 0)
          return (yield* container.exit).exitCode
        })
      )
      assert.strictEqual(exitCode, ContainerGit.exitCodes.moved)
    })
  )

  it.effect("leaves no container and no clone if the read is interrupted", () =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      const runtime = yield* ContainerRuntime
      const path = yield* checkout
      const request = yield* asked(path)
      const reading = yield* Effect.forkChild(Effect.scoped(relay.clone(request)), {
        startImmediately: true
      })
      yield* Effect.repeat(runtime.leftovers(request.runId), { until: (all) => all.length > 0 })
      yield* Fiber.interrupt(reading)
      assert.deepStrictEqual(yield* runtime.leftovers(request.runId), [])
      assert.deepStrictEqual(yield* relay.kept, [])
      assert.isFalse(existsSync(join(path, ".git/refs/heads/sandbox")))
    })
  )
})
