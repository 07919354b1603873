/**
 * `GitRelay` in memory: no git, no files, no container. Commits are real all the same, encoded and named as git does it,
 * and held to the same policy.
 *
 * `MemoryGit` is the hand that a test has in it: it makes origins, commits as an agent would, and looks where a branch
 * stands.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, type Scope } from "effect"
import * as CommitPolicy from "./CommitPolicy.ts"
import {
  type Checked,
  type Clone,
  type CloneRequest,
  type Collected,
  GitRelay,
  type Kept
} from "./GitRelay.ts"
import {
  GitRelayError,
  type GitRelayReason,
  NotKept,
  type Operation,
  OriginUnavailable,
  PatchRefused,
  PolicyRefused,
  PushRefused,
  RelayFailed
} from "./GitRelayError.ts"
import * as CommitWalk from "./internal/CommitWalk.ts"
import * as OriginAnswers from "./OriginAnswers.ts"
import { type BranchName, branchOf, type CommitId } from "./Refs.ts"
import * as MemoryObjects from "./testing/MemoryObjects.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** Files by path. @category models */
export type Files = Readonly<Record<string, MemoryObjects.File>>

/** What a test does behind the relay's back. @category services */
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
  }
>()("@cogni/sandbox-git-relay/MemoryGit") {}

/** @category models */
export interface MemoryOptions {
  readonly policies?: CommitPolicy.Policies | undefined
}

interface Origin {
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
  left: Files | undefined
}

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

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
        origins.set(url, { branches: new Map(main), pullRequests: new Map() })
        return url
      }),
    commit: ({ request: { runId } }, files, message = "work") =>
      Effect.sync(() => commit(runs.get(runId)!, files, message)),
    leave: ({ request: { runId } }, files) =>
      Effect.sync(() => {
        const run = runs.get(runId)!
        run.left = { ...run.left, ...files }
      }),
    branchAt: (url, branch) => Effect.sync(() => origins.get(url)?.branches.get(branch))
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
  if (origin === undefined) {
    return yield* new OriginUnavailable({
      fault: "not_found",
      detail: "is not there",
      remedy: "Make it: MemoryGit.origin",
      isRetryable: false
    })
  }
  const refs = new Map([...origin.branches].map(([name, id]) => [`refs/heads/${name}`, id]))
  const headBranch = origin.branches.has("main") ? "main" : undefined
  const base = yield* Effect.fromResult(
    OriginAnswers.baseOf({ headBranch, refs, objectFormat: "sha1" }, request.baseBranch)
  )
  const branch = request.branch ?? branchOf(runId)
  const refused = CommitPolicy.branchAllowed(CommitPolicy.policyFor(policies, url), branch, base.branch)
  if (refused !== undefined) {
    const { detail, remedy } = refused
    return yield* new OriginUnavailable({ fault: "unsupported", detail, remedy, isRetryable: false })
  }
  const clone: Clone = {
    request,
    baseBranch: base.branch,
    branch,
    baseCommit: request.baseCommit ?? base.commit,
    objectFormat: "sha1",
    workspacePath: `/memory/${runId}/workspace`,
    directory: `/memory/${runId}`
  }
  const files = git.contents.get(clone.baseCommit) ?? {}
  git.runs.set(runId, { clone, stage: "cloned", held: true, tip: clone.baseCommit, files, left: undefined })
  return clone
})

const checked = Effect.fnUntraced(function* (git: Git, { policies }: MemoryOptions, collected: Collected) {
  const { bundle, clone, tip } = collected
  if (tip === undefined || bundle === undefined) return yield* nothing
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
  const { branches } = git.origins.get(clone.request.url)!
  const there = branches.get(clone.branch)
  const unchanged =
    there !== undefined && (there === tip || treeOf(git.objects, there) === treeOf(git.objects, tip))
  if (there !== undefined && !unchanged) {
    return yield* new PushRefused({
      fault: "branch_exists",
      branch: clone.branch,
      detail: "it is there already, with something else",
      remedy: "Push under another name",
      keptAt: clone.directory,
      isRetryable: false
    })
  }
  if (!unchanged) branches.set(clone.branch, tip)
  stageOf(git, clone, clone.request.createPr === true ? "pushed" : "settled")
  return { checked: given, branch: clone.branch, tip: there ?? tip, unchanged }
})

const makeRelay = (git: Git, options: MemoryOptions): GitRelay["Service"] => {
  const { objects, origins, runs } = git
  const holding = <E, R>(runId: RunId, acquire: Effect.Effect<Clone, E, R>) =>
    Effect.tap(acquire, () =>
      Effect.addFinalizer(() =>
        Effect.sync(() => {
          const run = runs.get(runId)
          if (run !== undefined) run.held = false
          if (run?.stage === "settled") runs.delete(runId)
        })
      )
    )
  return GitRelay.of({
    clone: (request) =>
      holding(request.runId, cloned(git, options, request)).pipe(operation("clone", request.runId)),
    reopen: (runId, changed = {}) =>
      holding(runId, reopened(git, runId, changed)).pipe(operation("reopen", runId)),
    collect: (clone, how) =>
      Effect.gen(function* () {
        const run = runs.get(clone.request.runId)
        if (run === undefined) return yield* gone
        if (how?.commitLeftovers !== undefined && run.left !== undefined)
          git.commit(run, run.left, how.commitLeftovers)
        if (run.tip === clone.baseCommit) return { clone, tip: undefined, bundle: undefined }
        stageOf(git, clone, "collected")
        const bundle = { path: `${clone.directory}/bundle`, bytes: 1, digest: "0".repeat(64) }
        return { clone, tip: run.tip, bundle } satisfies Collected
      }).pipe(operation("collect", clone.request.runId)),
    apply: (clone) =>
      Effect.fail(
        new PatchRefused({ detail: "there is no git in memory to apply them", remedy: "Use HostGitRelay" })
      ).pipe(operation("apply", clone.request.runId)),
    check: (collected) =>
      checked(git, options, collected).pipe(operation("check", collected.clone.request.runId)),
    patch: ({ clone, tip }) =>
      Effect.sync(() => {
        const content = Buffer.from(objects.get(tip)!.content).toString("utf8")
        return Buffer.from(`From ${tip}\nSubject: ${content.slice(content.indexOf("\n\n") + 2)}`)
      }).pipe(operation("patch", clone.request.runId)),
    push: (given) => pushed(git, given).pipe(operation("push", given.clone.request.runId)),
    openPullRequest: ({ branch, checked: { clone } }) =>
      Effect.sync(() => {
        const { pullRequests } = origins.get(clone.request.url)!
        const existing = pullRequests.has(branch)
        const number = pullRequests.get(branch) ?? pullRequests.size + 1
        pullRequests.set(branch, number)
        stageOf(git, clone, "settled")
        return { url: `${clone.request.url}/pull/${number}`, number, existing }
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

// -----------------------------------------------------------------------------
// layers
// -----------------------------------------------------------------------------

/** @category layers */
export const layer = (options: MemoryOptions = {}): Layer.Layer<GitRelay | MemoryGit> =>
  Layer.effectContext(
    Effect.sync(() => {
      const git = makeGit()
      return Context.make(MemoryGit, git.git).pipe(Context.add(GitRelay, makeRelay(git, options)))
    })
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const reopened = Effect.fnUntraced(function* (
  git: Git,
  runId: RunId,
  changed: { readonly branch?: BranchName | undefined; readonly createPr?: boolean | undefined }
): Effect.fn.Return<Clone, NotKept, Scope.Scope> {
  const run = git.runs.get(runId)
  if (run === undefined || run.stage === "settled") return yield* inUse(runId, "nothing is kept")
  if (run.held) return yield* inUse(runId, "somebody is at work")
  const request =
    changed.createPr === undefined ? run.clone.request : { ...run.clone.request, createPr: changed.createPr }
  const clone = { ...run.clone, request, branch: changed.branch ?? run.clone.branch }
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

const gone = Effect.fail(
  new RelayFailed({ detail: "what is kept is gone", remedy: "Run it again", isRetryable: false })
)

const nothing = Effect.fail(
  new RelayFailed({ detail: "there is nothing to check", remedy: "Discard it", isRetryable: false })
)
