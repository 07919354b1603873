/**
 * `GitRelay` in memory, without git, files or containers. Its commits are real git objects with git's own IDs, and are
 * checked against the same policy.
 *
 * Tests control it with `MemoryGit`: it creates origins, makes them fail, commits as an agent would, and reads
 * branches.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer } from "effect"
import { createHash } from "node:crypto"
import type * as CommitPolicy from "./CommitPolicy.ts"
import { GitRelay } from "./GitRelay.ts"
import { type Clone, type CloneRequest, depthMax, type Kept } from "./RelaySteps.ts"
import {
  GitRelayError,
  type GitRelayReason,
  NotKept,
  type Operation,
  type OriginFault,
  OriginUnavailable,
  PatchRefused,
  PullRequestFailed,
  type PushFault,
  PushRefused,
  RelayFailed
} from "./GitRelayError.ts"
import * as OriginAnswers from "./internal/origin/OriginAnswers.ts"
import * as PolicyGate from "./internal/policy/PolicyGate.ts"
import { branchOf, type CommitId } from "./Refs.ts"
import * as GitObject from "./internal/git/GitObject.ts"
import * as MemoryObjects from "./internal/git/MemoryObjects.ts"

/** File contents by path. */
export type Files = Readonly<Record<string, MemoryObjects.File>>

/** Controls an in-memory relay from a test. */
export class MemoryGit extends Context.Service<
  MemoryGit,
  {
    /** Creates an origin whose `main` contains these files, or an empty origin without them. Returns its URL. */
    readonly origin: (name: string, files?: Files) => Effect.Effect<string>
    /** Commits in a clone, as its agent would. Files with the same name are replaced. */
    readonly commit: (clone: Clone, files: Files, message?: string) => Effect.Effect<CommitId>
    /** Changes files without committing them. */
    readonly leave: (clone: Clone, files: Files) => Effect.Effect<void>
    readonly branchAt: (url: string, branch: string) => Effect.Effect<CommitId | undefined>
    /** Makes an origin fail with these faults from now on. An empty object clears them. */
    readonly trouble: (
      url: string,
      trouble: {
        readonly clone?: OriginFault | undefined
        readonly push?: PushFault | undefined
        readonly pullRequest?: string | undefined
      }
    ) => Effect.Effect<void>
  }
>()("@cogni/sandbox-git-relay/MemoryGit") {}

type Trouble = Parameters<MemoryGit["Service"]["trouble"]>[1]

interface MemoryOptions {
  readonly policies?: CommitPolicy.Policies | undefined
}

interface Origin {
  trouble: Trouble
  readonly branches: Map<string, CommitId>
  readonly pullRequests: Map<string, number>
}

interface Relayed {
  readonly clone: Clone
  stage: "cloned" | "collected" | "checked" | "pushed" | "settled"
  held: boolean
  /** Tip of the branch in the workspace. */
  tip: CommitId
  files: Files
  left?: Files | undefined
  /** Commit that the branch pointed to after the last push. */
  pushedTip?: CommitId | undefined
}

const makeGit = () => {
  const objects = MemoryObjects.make()
  const origins = new Map<string, Origin>()
  const runs = new Map<RunId, Relayed>()
  const contents = new Map<CommitId, Files>()

  const put = (files: Files, parents: ReadonlyArray<CommitId>, message: string): CommitId => {
    const id = objects.putCommit({ tree: objects.putFiles(files), parents, message })
    contents.set(id, files)
    return id
  }
  const commit = (run: Relayed, files: Files, message: string) => {
    run.files = { ...run.files, ...files }
    run.tip = put(run.files, [run.tip], `${message}\n`)
    return run.tip
  }
  const git = MemoryGit.of({
    origin: (name, files) =>
      Effect.sync(() => {
        const url = `https://memory.example/${name}`
        const main = files === undefined ? [] : [["main", put(files, [], "first\n")] as const]
        origins.set(url, { branches: new Map(main), pullRequests: new Map(), trouble: {} })
        return url
      }),
    commit: ({ request: { runId } }, files, message = "work") =>
      Effect.sync(() => commit(runs.get(runId)!, files, message)),
    leave: ({ request: { runId } }, files) =>
      Effect.sync(() => {
        const run = runs.get(runId)!
        run.left = { ...run.left, ...files }
      }),
    branchAt: (url, branch) => Effect.sync(() => origins.get(url)?.branches.get(branch)),
    trouble: (url, trouble) =>
      Effect.sync(() => {
        origins.get(url)!.trouble = trouble
      })
  })
  return { objects, origins, runs, contents, commit, git }
}

const makeRelay = (
  { commit, contents, objects, origins, runs }: ReturnType<typeof makeGit>,
  { policies }: MemoryOptions
): GitRelay["Service"] => {
  const { reader } = objects

  const clone = Effect.fnUntraced(function* (request: CloneRequest) {
    const { runId, url } = request
    if (runs.has(runId)) return yield* notKept(runId, "it is already kept")
    const origin = origins.get(url)
    if (origin === undefined) return yield* unavailable("not_found", "does not exist")
    const { clone: fault } = origin.trouble
    if (fault !== undefined) return yield* unavailable(fault, "fails because the test requested it")
    const refs = new Map([...origin.branches].map(([name, id]) => [`refs/heads/${name}`, id]))
    const headBranch = origin.branches.has("main") ? "main" : undefined
    const base = yield* Effect.fromResult(
      OriginAnswers.baseOf({ headBranch, refs, objectFormat: "sha1" }, request.baseBranch)
    )
    const branch = request.branch ?? branchOf(runId)
    yield* PolicyGate.mayPush(policies, { url, branch, baseBranch: base.branch })
    const clone: Clone = {
      request,
      baseBranch: base.branch,
      branch,
      baseCommit: request.baseCommit ?? base.commit,
      objectFormat: "sha1",
      workspacePath: `/memory/${runId}/workspace`,
      directory: `/memory/${runId}`
    }
    const files = contents.get(clone.baseCommit)
    if (files === undefined) return yield* unavailable("other", `has no commit ${clone.baseCommit}`)
    runs.set(runId, { clone, stage: "cloned", held: true, tip: clone.baseCommit, files })
    return clone
  })

  const treeOf = (id: CommitId) => GitObject.treeOfCommit(objects.get(id)!.content, "sha1")

  const holding = <E, R>(runId: RunId, acquire: Effect.Effect<Clone, E, R>) =>
    Effect.acquireRelease(acquire, () =>
      Effect.sync(() => {
        const run = runs.get(runId)
        if (run !== undefined) run.held = false
        if (run?.stage === "settled") runs.delete(runId)
      })
    )

  /** Runs an operation on a clone that still exists. */
  const step = <A, E extends GitRelayReason>(
    operation: Operation,
    { request: { runId } }: Clone,
    run: (relayed: Relayed) => Effect.Effect<A, E>
  ) =>
    Effect.suspend((): Effect.Effect<A, E | RelayFailed> => {
      const relayed = runs.get(runId)
      return relayed === undefined
        ? Effect.fail(new RelayFailed({ detail: "the kept run no longer exists", remedy: "Run it again" }))
        : run(relayed)
    }).pipe(failAs(operation, runId))

  return GitRelay.of({
    clone: (request) => holding(request.runId, clone(request)).pipe(failAs("clone", request.runId)),
    reopen: (runId, changed = {}) =>
      holding(
        runId,
        Effect.gen(function* () {
          const run = runs.get(runId)
          if (run === undefined || run.stage === "settled")
            return yield* notKept(runId, "no commits are kept")
          if (run.held) return yield* notKept(runId, "it is in use")
          const { branch = run.clone.branch, createPr = run.clone.request.createPr } = changed
          const { baseBranch, request } = run.clone
          yield* PolicyGate.mayPush(policies, { url: request.url, branch, baseBranch })
          const clone: Clone = { ...run.clone, branch, request: { ...request, createPr } }
          runs.set(runId, { ...run, clone, held: true })
          return clone
        })
      ).pipe(failAs("reopen", runId)),
    collect: (clone, { uncommittedMessage } = {}) =>
      step("collect", clone, (run) =>
        Effect.sync(() => {
          if (uncommittedMessage !== undefined && run.left !== undefined) {
            commit(run, run.left, uncommittedMessage)
            run.left = undefined
          }
          const { tip } = run
          if (tip === clone.baseCommit) return { clone, tip: undefined, bundle: undefined }
          run.stage = "collected"
          const digest = createHash("sha256").update(tip).digest("hex")
          return { clone, tip, bundle: { path: `${clone.directory}/bundle`, bytes: tip.length, digest } }
        })
      ),
    apply: (clone) =>
      step("apply", clone, () =>
        Effect.fail(
          new PatchRefused({
            detail: "the in-memory relay has no git to apply them",
            remedy: "Use HostGitRelay"
          })
        )
      ),
    check: (collected) =>
      step("check", collected.clone, (run) => {
        const secrets = collected.clone.request.canaries ?? []
        return Effect.tap(PolicyGate.check(collected, policies, { reader, secrets }), () => {
          run.stage = "checked"
          return Effect.void
        })
      }),
    // Lists only the message of each commit, oldest first, because there is no git to write the changes.
    patch: ({ clone, tip }) =>
      step("patch", clone, () =>
        Effect.map(reader.commits(tip, clone.baseCommit, depthMax), (commits) => {
          const letters = commits.toReversed().map(({ id }) => {
            const content = Buffer.from(objects.get(id)!.content).toString("utf8")
            return `From ${id} Mon Sep 17 00:00:00 2001\nSubject: ${content.slice(content.indexOf("\n\n") + 2)}\n`
          })
          return Buffer.from(letters.join(""), "utf8")
        })
      ),
    push: (checked) =>
      step("push", checked.clone, (run) =>
        Effect.gen(function* () {
          const { clone, tip } = checked
          const { branch, directory: keptAt, request } = clone
          const { branches, trouble } = origins.get(request.url)!
          const refuse = (fault: PushFault, detail: string) =>
            new PushRefused({
              fault,
              branch,
              detail,
              remedy: "Push under another name, or try again later",
              keptAt,
              isRetryable: fault !== "branch_exists"
            })
          if (trouble.push !== undefined)
            return yield* refuse(trouble.push, "the test requested this failure")
          const there = branches.get(branch)
          const unchanged = there !== undefined && (there === tip || treeOf(there) === treeOf(tip))
          if (there !== undefined && !unchanged) {
            // The branch may move only from the commit that this run pushed last.
            const follows = there === run.pushedTip && (yield* reader.isAncestor(there, tip))
            if (!follows) return yield* refuse("branch_exists", "it already exists with different content")
          }
          const at = unchanged ? there : tip
          branches.set(branch, at)
          run.pushedTip = at
          run.stage = request.createPr === true ? "pushed" : "settled"
          return { checked, branch, tip: at, unchanged }
        })
      ),
    openPullRequest: ({ branch, checked: { clone } }) =>
      step("openPullRequest", clone, (run) => {
        const { pullRequests, trouble } = origins.get(clone.request.url)!
        const { pullRequest: detail } = trouble
        if (detail !== undefined)
          return Effect.fail(new PullRequestFailed({ detail, remedy: "Try again", isRetryable: true }))
        const existing = pullRequests.has(branch)
        const number = pullRequests.get(branch) ?? pullRequests.size + 1
        pullRequests.set(branch, number)
        run.stage = "settled"
        return Effect.succeed({ url: `${clone.request.url}/pull/${number}`, number, existing })
      }),
    findPullRequest: ({ branch, checked: { clone } }) =>
      step("openPullRequest", clone, () => {
        const number = origins.get(clone.request.url)!.pullRequests.get(branch)
        const url = `${clone.request.url}/pull/${number}`
        return Effect.succeed(number === undefined ? undefined : { url, number, existing: true })
      }),
    discard: (runId) =>
      Effect.sync(() => {
        const run = runs.get(runId)
        if (run?.held === true) run.stage = "settled"
        else runs.delete(runId)
      }),
    kept: Effect.sync(() =>
      [...runs.values()]
        .filter(({ stage }) => stage !== "settled")
        .map(({ clone, held, stage }): Kept => ({
          runId: clone.request.runId,
          url: clone.request.url,
          branch: clone.branch,
          stage,
          directory: clone.directory,
          since: new Date(0),
          inUse: held
        }))
    )
  })
}

export const layer = (options: MemoryOptions = {}): Layer.Layer<GitRelay | MemoryGit> =>
  Layer.effectContext(
    Effect.sync(() => {
      const git = makeGit()
      return Context.make(MemoryGit, git.git).pipe(Context.add(GitRelay, makeRelay(git, options)))
    })
  )

const failAs = (operation: Operation, runId: RunId) =>
  Effect.mapError((reason: GitRelayReason) => new GitRelayError({ operation, runId, reason }))

const notKept = (runId: RunId, detail: string) =>
  new NotKept({ runId, detail, remedy: "Use another run ID, or list the kept runs" })

const unavailable = (fault: OriginFault, detail: string) =>
  new OriginUnavailable({
    fault,
    detail,
    remedy: "Check the origins and the faults that the test set up with MemoryGit",
    isRetryable: fault === "unreachable" || fault === "timeout"
  })
