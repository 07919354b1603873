/**
 * `GitRelay` in memory: no git, no files, no container. Commits are real all the same, encoded and named as git does
 * it, and held to the same policy.
 *
 * `MemoryGit` is the hand that a test has in it: it makes origins and their troubles, commits as an agent would, and
 * looks where a branch stands.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer } from "effect"
import { createHash } from "node:crypto"
import * as CommitPolicy from "./CommitPolicy.ts"
import {
  type Checked,
  type Clone,
  type CloneRequest,
  type Collected,
  depthMax,
  GitRelay,
  type Kept,
  type Pushed,
  type ReopenOptions
} from "./GitRelay.ts"
import {
  GitRelayError,
  type GitRelayReason,
  NotKept,
  type Operation,
  type OriginFault,
  OriginUnavailable,
  PatchRefused,
  PolicyRefused,
  PullRequestFailed,
  type PushFault,
  PushRefused,
  RelayFailed
} from "./GitRelayError.ts"
import * as CommitWalk from "./internal/policy/CommitWalk.ts"
import * as OriginAnswers from "./internal/origin/OriginAnswers.ts"
import { type BranchName, branchOf, type CommitId } from "./Refs.ts"
import * as MemoryObjects from "./testing/MemoryObjects.ts"

/** Files by path. */
export type Files = Readonly<Record<string, MemoryObjects.File>>

/** What a test does behind the relay's back. */
export class MemoryGit extends Context.Service<
  MemoryGit,
  {
    /** An origin whose `main` holds these files; with none it is empty. Answers its URL. */
    readonly origin: (name: string, files?: Files) => Effect.Effect<string>
    /** As the agent of a clone does it; the files take the place of those of the same name. */
    readonly commit: (clone: Clone, files: Files, message?: string) => Effect.Effect<CommitId>
    /** Changed and not committed. */
    readonly leave: (clone: Clone, files: Files) => Effect.Effect<void>
    readonly branchAt: (url: string, branch: string) => Effect.Effect<CommitId | undefined>
    /** What an origin refuses from now on; nothing, when there is nothing in it. */
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

export interface MemoryOptions {
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
  /** Of the workspace. */
  tip: CommitId
  files: Files
  left?: Files | undefined
  /** Where the branch stood when we pushed it last. */
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

type Git = ReturnType<typeof makeGit>

const operation =
  (name: Operation, runId?: RunId) =>
  <A, R>(effect: Effect.Effect<A, GitRelayReason, R>) =>
    Effect.mapError(
      effect,
      (reason) => new GitRelayError({ operation: name, reason, ...(runId === undefined ? {} : { runId }) })
    )

const cloned = Effect.fnUntraced(function* (git: Git, { policies }: MemoryOptions, request: CloneRequest) {
  const { runId, url } = request
  const there = git.runs.get(runId)
  if (there !== undefined) return yield* inUse(runId, "there is something already")
  const origin = git.origins.get(url)
  if (origin === undefined) return yield* unavailable("not_found", "is not there")
  const { clone: fault } = origin.trouble
  if (fault !== undefined) return yield* unavailable(fault, "is in trouble")
  const refs = new Map([...origin.branches].map(([name, id]) => [`refs/heads/${name}`, id]))
  const headBranch = origin.branches.has("main") ? "main" : undefined
  const base = yield* Effect.fromResult(
    OriginAnswers.baseOf({ headBranch, refs, objectFormat: "sha1" }, request.baseBranch)
  )
  const branch = request.branch ?? branchOf(runId)
  yield* mayPush(policies, url, branch, base.branch)
  const clone: Clone = {
    request,
    baseBranch: base.branch,
    branch,
    baseCommit: request.baseCommit ?? base.commit,
    objectFormat: "sha1",
    workspacePath: `/memory/${runId}/workspace`,
    directory: `/memory/${runId}`
  }
  const files = git.contents.get(clone.baseCommit)
  if (files === undefined) return yield* unavailable("other", `has no commit ${clone.baseCommit}`)
  git.runs.set(runId, { clone, stage: "cloned", held: true, tip: clone.baseCommit, files })
  return clone
})

const checked = Effect.fnUntraced(function* (git: Git, { policies }: MemoryOptions, collected: Collected) {
  const { bundle, clone, tip } = collected
  if (tip === undefined || bundle === undefined) return yield* nothing
  yield* runOf(git, clone)
  const policy = CommitPolicy.policyFor(policies, clone.request.url)
  const { commits, paths, violations, violationsTotal } = yield* CommitWalk.walk({
    reader: git.objects.reader,
    base: clone.baseCommit,
    tip,
    policy,
    objectFormat: "sha1",
    secrets: clone.request.canaries ?? []
  })
  if (violationsTotal > 0)
    return yield* new PolicyRefused({ violations, violationsTotal, keptAt: clone.directory })
  stageOf(git, clone, "checked")
  const policyDigest = CommitPolicy.digest(policy)
  return { clone, tip, bundle, commits, paths, policyDigest } satisfies Checked
})

const pushed = Effect.fnUntraced(function* (git: Git, given: Checked) {
  const { clone, tip } = given
  const run = yield* runOf(git, clone)
  const { branches, trouble } = git.origins.get(clone.request.url)!
  const refuse = (fault: PushFault, detail: string) =>
    new PushRefused({
      fault,
      branch: clone.branch,
      detail,
      remedy: "Push under another name, or once it is over",
      keptAt: clone.directory,
      isRetryable: fault !== "branch_exists"
    })
  if (trouble.push !== undefined) return yield* refuse(trouble.push, "the origin is in trouble")
  const there = branches.get(clone.branch)
  const unchanged =
    there !== undefined && (there === tip || treeOf(git.objects, there) === treeOf(git.objects, tip))
  if (there !== undefined && !unchanged) {
    // On top of what is ours alone.
    const follows = there === run.pushedTip && (yield* git.objects.reader.isAncestor(there, tip))
    if (!follows) return yield* refuse("branch_exists", "it is there already, with something else")
  }
  const at = unchanged ? there : tip
  branches.set(clone.branch, at)
  run.pushedTip = at
  run.stage = clone.request.createPr === true ? "pushed" : "settled"
  return { checked: given, branch: clone.branch, tip: at, unchanged }
})

/** What there is to say of each commit, the oldest first: no changes, for there is no git to write them. */
const patched = Effect.fnUntraced(function* (git: Git, { clone, tip }: Checked) {
  yield* runOf(git, clone)
  const commits = yield* git.objects.reader.commits(tip, clone.baseCommit, depthMax)
  const letters = commits.toReversed().map(({ id }) => {
    const content = Buffer.from(git.objects.get(id)!.content).toString("utf8")
    return `From ${id} Mon Sep 17 00:00:00 2001\nSubject: ${content.slice(content.indexOf("\n\n") + 2)}\n`
  })
  return Buffer.from(letters.join(""), "utf8")
})

const requested = Effect.fnUntraced(function* (git: Git, { branch, checked: { clone } }: Pushed) {
  const { pullRequests, trouble } = git.origins.get(clone.request.url)!
  if (trouble.pullRequest !== undefined) {
    const detail = trouble.pullRequest
    return yield* new PullRequestFailed({ detail, remedy: "Try again", isRetryable: true })
  }
  const existing = pullRequests.has(branch)
  const number = pullRequests.get(branch) ?? pullRequests.size + 1
  pullRequests.set(branch, number)
  stageOf(git, clone, "settled")
  return { url: `${clone.request.url}/pull/${number}`, number, existing }
})

const collected = Effect.fnUntraced(function* (git: Git, clone: Clone, leftovers: string | undefined) {
  const run = yield* runOf(git, clone)
  if (leftovers !== undefined && run.left !== undefined) {
    git.commit(run, run.left, leftovers)
    run.left = undefined
  }
  const { tip } = run
  if (tip === clone.baseCommit) return { clone, tip: undefined, bundle: undefined }
  run.stage = "collected"
  const digest = createHash("sha256").update(tip).digest("hex")
  const bundle = { path: `${clone.directory}/bundle`, bytes: tip.length, digest }
  return { clone, tip, bundle } satisfies Collected
})

const makeRelay = (git: Git, options: MemoryOptions): GitRelay["Service"] => {
  const { runs } = git
  const holding = <E, R>(runId: RunId, acquire: Effect.Effect<Clone, E, R>) =>
    Effect.acquireRelease(acquire, () =>
      Effect.sync(() => {
        const run = runs.get(runId)
        if (run !== undefined) run.held = false
        if (run?.stage === "settled") runs.delete(runId)
      })
    )
  const of = (name: Operation, { request: { runId } }: Clone) => operation(name, runId)
  return GitRelay.of({
    clone: (request) =>
      holding(request.runId, cloned(git, options, request)).pipe(operation("clone", request.runId)),
    reopen: (runId, changed = {}) =>
      holding(runId, reopened(git, options, runId, changed)).pipe(operation("reopen", runId)),
    collect: (clone, how) => collected(git, clone, how?.commitLeftovers).pipe(of("collect", clone)),
    apply: (clone) =>
      Effect.fail(
        new PatchRefused({ detail: "there is no git in memory to apply them", remedy: "Use HostGitRelay" })
      ).pipe(of("apply", clone)),
    check: (given) => checked(git, options, given).pipe(of("check", given.clone)),
    patch: (given) => patched(git, given).pipe(of("patch", given.clone)),
    push: (given) => pushed(git, given).pipe(of("push", given.clone)),
    openPullRequest: (given) => requested(git, given).pipe(of("openPullRequest", given.checked.clone)),
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

const reopened = Effect.fnUntraced(function* (
  git: Git,
  { policies }: MemoryOptions,
  runId: RunId,
  changed: ReopenOptions
) {
  const run = git.runs.get(runId)
  if (run === undefined || run.stage === "settled") return yield* inUse(runId, "nothing is kept")
  if (run.held) return yield* inUse(runId, "somebody is at work")
  const request =
    changed.createPr === undefined ? run.clone.request : { ...run.clone.request, createPr: changed.createPr }
  const clone: Clone = { ...run.clone, request, branch: changed.branch ?? run.clone.branch }
  yield* mayPush(policies, request.url, clone.branch, clone.baseBranch)
  git.runs.set(runId, { ...run, clone, held: true })
  return clone
})

const stageOf = ({ runs }: Git, { request: { runId } }: Clone, stage: Relayed["stage"]) => {
  const run = runs.get(runId)
  if (run !== undefined) run.stage = stage
}

const treeOf = (objects: MemoryObjects.MemoryObjects, id: CommitId): string =>
  Buffer.from(objects.get(id)?.content ?? [])
    .toString("latin1")
    .slice(0, "tree ".length + 40)

const inUse = (runId: RunId, detail: string) =>
  new NotKept({ runId, detail, remedy: "Use another run id, or see what is kept" })

const runOf = ({ runs }: Git, { request: { runId } }: Clone): Effect.Effect<Relayed, RelayFailed> => {
  const run = runs.get(runId)
  return run === undefined
    ? Effect.fail(
        new RelayFailed({ detail: "what is kept is gone", remedy: "Run it again", isRetryable: false })
      )
    : Effect.succeed(run)
}

const mayPush = (
  policies: CommitPolicy.Policies | undefined,
  url: string,
  branch: BranchName,
  base: string
): Effect.Effect<void, OriginUnavailable> => {
  const refused = CommitPolicy.branchAllowed(CommitPolicy.policyFor(policies, url), branch, base)
  return refused === undefined
    ? Effect.void
    : Effect.fail(unavailable("unsupported", `must not get the branch ${branch}: ${refused.detail}`))
}

const unavailable = (fault: OriginFault, detail: string) =>
  new OriginUnavailable({
    fault,
    detail,
    remedy: "See MemoryGit: what it has, and what trouble it was given",
    isRetryable: fault === "unreachable" || fault === "timeout"
  })

const nothing = Effect.fail(
  new RelayFailed({ detail: "there is nothing to check", remedy: "Discard it", isRetryable: false })
)
