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
import type * as CommitPolicy from "./CommitPolicy.ts"
import { type Clone, type CloneRequest, depthMax, GitRelay, type Kept } from "./GitRelay.ts"
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

const makeRelay = (
  { commit, contents, objects, origins, runs }: ReturnType<typeof makeGit>,
  { policies }: MemoryOptions
): GitRelay["Service"] => {
  const { reader } = objects

  const clone = Effect.fnUntraced(function* (request: CloneRequest) {
    const { runId, url } = request
    if (runs.has(runId)) return yield* notKept(runId, "there is something already")
    const origin = origins.get(url)
    if (origin === undefined) return yield* unavailable("not_found", "is not there")
    const { clone: fault } = origin.trouble
    if (fault !== undefined) return yield* unavailable(fault, "is in trouble")
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

  /** What is done with a clone that is still there. */
  const step = <A, E extends GitRelayReason>(
    operation: Operation,
    { request: { runId } }: Clone,
    run: (relayed: Relayed) => Effect.Effect<A, E>
  ) =>
    Effect.suspend((): Effect.Effect<A, E | RelayFailed> => {
      const relayed = runs.get(runId)
      return relayed === undefined
        ? Effect.fail(new RelayFailed({ detail: "what is kept is gone", remedy: "Run it again" }))
        : run(relayed)
    }).pipe(failAs(operation, runId))

  return GitRelay.of({
    clone: (request) => holding(request.runId, clone(request)).pipe(failAs("clone", request.runId)),
    reopen: (runId, changed = {}) =>
      holding(
        runId,
        Effect.gen(function* () {
          const run = runs.get(runId)
          if (run === undefined || run.stage === "settled") return yield* notKept(runId, "nothing is kept")
          if (run.held) return yield* notKept(runId, "somebody is at work")
          const { branch = run.clone.branch, createPr = run.clone.request.createPr } = changed
          const { baseBranch, request } = run.clone
          yield* PolicyGate.mayPush(policies, { url: request.url, branch, baseBranch })
          const clone: Clone = { ...run.clone, branch, request: { ...request, createPr } }
          runs.set(runId, { ...run, clone, held: true })
          return clone
        })
      ).pipe(failAs("reopen", runId)),
    collect: (clone, { commitLeftovers } = {}) =>
      step("collect", clone, (run) =>
        Effect.sync(() => {
          if (commitLeftovers !== undefined && run.left !== undefined) {
            commit(run, run.left, commitLeftovers)
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
          new PatchRefused({ detail: "there is no git in memory to apply them", remedy: "Use HostGitRelay" })
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
    // What there is to say of each commit, the oldest first: no changes, for there is no git to write them.
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
              remedy: "Push under another name, or once it is over",
              keptAt,
              isRetryable: fault !== "branch_exists"
            })
          if (trouble.push !== undefined) return yield* refuse(trouble.push, "the origin is in trouble")
          const there = branches.get(branch)
          const unchanged = there !== undefined && (there === tip || treeOf(there) === treeOf(tip))
          if (there !== undefined && !unchanged) {
            // On top of what is ours alone.
            const follows = there === run.pushedTip && (yield* reader.isAncestor(there, tip))
            if (!follows) return yield* refuse("branch_exists", "it is there already, with something else")
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
  new NotKept({ runId, detail, remedy: "Use another run id, or see what is kept" })

const unavailable = (fault: OriginFault, detail: string) =>
  new OriginUnavailable({
    fault,
    detail,
    remedy: "See MemoryGit: what it has, and what trouble it was given",
    isRetryable: fault === "unreachable" || fault === "timeout"
  })
