/**
 * Proposes a change of a few files as a branch and a pull request, without an agent.
 *
 *     clone ─► edit ─► write ─► verify ─► commit ─► check ─► push ─► pull request
 *
 * The host writes the files into a clone that no agent has seen, and follows no link in it. `verify` sees the whole
 * clone with the change, and nothing is pushed unless it succeeds. The name of the branch follows from the change, so a
 * repeated proposal finds the branch and the pull request of the first.
 */
import type { Files } from "@cogni/sandbox-core/Executor"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import { Effect, Schema } from "effect"
import { createHash } from "node:crypto"
import { GitRelay } from "./GitRelay.ts"
import { type Clone, type PullRequest, type PullRequestText } from "./RelaySteps.ts"
import { GitRelayError, RelayFailed } from "./GitRelayError.ts"
import { BranchName, type CommitId } from "./Refs.ts"

/** The new content of a file, by its path in the repository. */
export interface FileChange {
  readonly path: string
  readonly content: string
}

/** Files of the base, read without following a link. */
export interface BaseFiles {
  /** Reads a file; `undefined` if it does not exist. */
  readonly read: (path: string) => Effect.Effect<string | undefined, FileRefused | ProposalRefused>
}

export interface ProposalRequest<E, R, E2, R2> {
  readonly url: string
  /** Default: the branch that the origin's HEAD names. */
  readonly baseBranch?: string | undefined
  /** First part of the branch's name, such as `personality-coder`. */
  readonly title: string
  /** Message of the commit. */
  readonly message: string
  readonly pullRequest?: PullRequestText | undefined
  /** Decides the change from the files of the base. Files that already have their content are not a change. */
  readonly edit: (base: BaseFiles) => Effect.Effect<ReadonlyArray<FileChange>, E, R>
  /** Checks the repository with the change. */
  readonly verify: (files: Files<FileRefused>) => Effect.Effect<void, E2, R2>
}

/** Outcome of a proposal. */
export type Proposed =
  | { readonly _tag: "Unchanged"; readonly baseBranch: string }
  | {
      readonly _tag: "Proposed"
      readonly baseBranch: string
      readonly branch: BranchName
      readonly tip: CommitId
      readonly pullRequest: PullRequest
    }

/** The change cannot be proposed, although the origin and the relay work. */
export class ProposalRefused extends Schema.TaggedError<ProposalRefused>()("ProposalRefused", {
  problem: Schema.Literals(["branch_taken", "ignored", "link", "path"]),
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** Clones, changes, verifies, and opens a pull request. Keeps nothing: the caller has the change. */
export const propose = Effect.fn("FileProposal.propose")(function* <E, R, E2, R2>(
  request: ProposalRequest<E, R, E2, R2>
): Effect.fn.Return<Proposed, E | E2 | FileRefused | GitRelayError | ProposalRefused, GitRelay | R | R2> {
  const relay = yield* GitRelay
  const runId = yield* RunId.generate
  const { baseBranch, url } = request
  return yield* Effect.gen(function* () {
    const decided = yield* Effect.scoped(
      Effect.gen(function* () {
        const clone = yield* relay.clone({ runId, url, baseBranch, createPr: true })
        const files = yield* filesOf(clone)
        const changes = yield* changed(files, yield* request.edit({ read: (path) => readPlain(files, path) }))
        return { changes, baseBranch: clone.baseBranch }
      })
    )
    const { changes } = decided
    if (changes.length === 0) return { _tag: "Unchanged", baseBranch: decided.baseBranch } satisfies Proposed
    const branch = branchOf(request.title, changes)
    return yield* Effect.scoped(
      Effect.flatMap(relay.reopen(runId, { branch, createPr: true }), (clone) =>
        delivered(clone, request, changes)
      )
    )
  }).pipe(Effect.ensuring(Effect.ignore(relay.discard(runId))))
})

interface Change extends FileChange {
  /** The content in the base; `undefined` if the file is new. */
  readonly before: string | undefined
}

const delivered = Effect.fnUntraced(function* <E, R, E2, R2>(
  clone: Clone,
  request: ProposalRequest<E, R, E2, R2>,
  changes: ReadonlyArray<Change>
) {
  const relay = yield* GitRelay
  const files = yield* filesOf(clone)
  for (const { content, path } of changes) yield* files.write(path, content)
  yield* request.verify(files)
  const collected = yield* relay.collect(clone, { uncommittedMessage: request.message })
  if (collected.tip === undefined) return yield* ignored(changes)
  const checked = yield* relay.check(collected)
  // Otherwise a filter or an ignore rule of the repository has changed what is committed.
  if (checked.commits !== 1 || checked.paths !== changes.length) return yield* ignored(changes)
  const { baseBranch, branch } = clone
  const pushed = yield* relay
    .push(checked)
    .pipe(
      Effect.catchIf(isTaken, () =>
        Effect.map(tipOfSame(clone, changes), (tip) => ({ checked, branch, tip, unchanged: undefined }))
      )
    )
  const pullRequest =
    pushed.unchanged === undefined
      ? yield* Effect.filterOrFail(
          relay.findPullRequest({ ...pushed, unchanged: true }),
          (found) => found !== undefined,
          () => unproposed(branch)
        )
      : yield* relay.openPullRequest(pushed, request.pullRequest)
  return { _tag: "Proposed", baseBranch, branch, tip: pushed.tip, pullRequest } satisfies Proposed
})

/**
 * The branch exists with another tree: because the base has moved, or because it has more than the change. Returns its
 * tip if it has the change. Its pull request is found if it is open, and none is opened: the rest was not checked.
 */
const tipOfSame = Effect.fnUntraced(function* (
  { branch, request: { url } }: Clone,
  changes: ReadonlyArray<Change>
) {
  const relay = yield* GitRelay
  const runId = yield* RunId.generate
  return yield* Effect.scoped(
    Effect.gen(function* () {
      const clone = yield* relay.clone({ runId, url, baseBranch: branch })
      yield* relay.discard(runId)
      const files = yield* filesOf(clone)
      const left = yield* changed(files, changes)
      return left.length > 0 ? yield* taken(branch) : clone.baseCommit
    })
  )
})

const taken = (branch: BranchName) =>
  new ProposalRefused({
    problem: "branch_taken",
    detail: `the branch ${branch} exists, with other content`,
    remedy: "Merge or close its pull request, delete the branch, and try again"
  })

/** The branch was pushed, and its pull request was not opened, or was closed. */
const unproposed = (branch: BranchName) =>
  new ProposalRefused({
    problem: "branch_taken",
    detail:
      `the branch ${branch} has this change and has no open pull request. None is opened, because the base has ` +
      "moved since or the branch has other changes, too",
    remedy: "Delete the branch, and try again"
  })

const isTaken = (error: unknown): error is GitRelayError =>
  error instanceof GitRelayError &&
  error.reason._tag === "PushRefused" &&
  error.reason.fault === "branch_exists"

const filesOf = Effect.fnUntraced(function* ({ workspacePath }: Clone) {
  const alias = `${workspacePath}/repo`
  const { path: workspace } = yield* HeldDirectory.hold(alias).pipe(
    Effect.mapError(
      ({ detail, remedy }) =>
        new GitRelayError({
          operation: "clone",
          reason: new RelayFailed({ detail: `the clone ${detail}`, remedy })
        })
    )
  )
  return WorkspaceFiles.make({ workspace, alias })
})

/** Returns the changes of files that have another content, and refuses paths that are not plain. */
const changed = Effect.fnUntraced(function* (
  files: Files<FileRefused>,
  changes: ReadonlyArray<FileChange>
): Effect.fn.Return<ReadonlyArray<Change>, FileRefused | ProposalRefused> {
  const found: Array<Change> = []
  for (const { content, path } of changes) {
    const before = yield* readPlain(files, path)
    if (before !== content) found.push({ path, content, before })
  }
  return found
})

/** Reads a file of the repository; `undefined` if it does not exist. Refuses a path that is not plain, and a link. */
const readPlain = Effect.fnUntraced(function* (
  files: Files<FileRefused>,
  path: string
): Effect.fn.Return<string | undefined, FileRefused | ProposalRefused> {
  const kind = yield* kindOf(files, path)
  if (kind === undefined) return undefined
  if (kind === "file") return new TextDecoder("utf-8").decode(yield* files.read(path))
  return yield* new ProposalRefused({
    problem: "link",
    detail: `${path} is no regular file of the repository, or a link leads to it`,
    remedy: "Remove the link from the repository, or name another file"
  })
})

/** Finds a file without following a link anywhere in its path. */
const kindOf = Effect.fnUntraced(function* (
  files: Files<FileRefused>,
  path: string
): Effect.fn.Return<"file" | "other" | undefined, FileRefused | ProposalRefused> {
  const parts = path.split("/")
  if (parts.some((part) => !plain.test(part))) {
    return yield* new ProposalRefused({
      problem: "path",
      detail: "the path of a file is not plain",
      remedy: "Use letters, digits, dots, underscores and hyphens, and no leading dot"
    })
  }
  let directory = "."
  for (const [at, part] of parts.entries()) {
    const entry = (yield* files.list(directory)).find(({ name }) => name === part)
    if (entry === undefined) return undefined
    const isLast = at === parts.length - 1
    if (entry.type !== (isLast ? "file" : "directory")) return "other"
    directory = at === 0 ? part : `${directory}/${part}`
  }
  return "file"
})

const plain = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$/u

const ignored = (changes: ReadonlyArray<Change>) =>
  new ProposalRefused({
    problem: "ignored",
    detail: `git did not commit exactly ${changes.map(({ path }) => path).join(", ")}`,
    remedy: "Remove the rule of the repository's .gitignore or .gitattributes that concerns it"
  })

/** Derives the branch from the change, so that the same change has the same branch. */
const branchOf = (title: string, changes: ReadonlyArray<Change>): BranchName => {
  const digest = createHash("sha256")
    .update(JSON.stringify(changes.map(({ before, content, path }) => [path, before ?? null, content])))
    .digest("hex")
    .slice(0, 16)
  const name = title.replace(/[^A-Za-z0-9_-]+/gu, "-").slice(0, 40)
  return BranchName.make(`sandbox/${name}-${digest}`)
}
