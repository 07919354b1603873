/**
 * Checks every commit that the base does not have against the policy, relative to each of its parents.
 *
 * Listings are compared, sizes are requested before contents, and each new file is read once. A finding in a file does
 * not count if the base has the same file anywhere, because the file is then only moved. The run's own secrets always
 * count.
 */
import type { Canary } from "@cogni/sandbox-core/Canary"
import { Effect } from "effect"
import type { Policy } from "../../CommitPolicy.ts"
import type { Violation } from "../../GitRelayError.ts"
import type { CommitId, ObjectFormat } from "../../Refs.ts"
import * as SecretScan from "./SecretScan.ts"
import * as CommitRules from "./CommitRules.ts"
import * as GitObject from "../git/GitObject.ts"
import * as NewFiles from "./NewFiles.ts"
import type { ListedCommit, ObjectReader } from "../git/ObjectReader.ts"
import * as TreeDiff from "./TreeDiff.ts"
import * as TreeReader from "./TreeReader.ts"
import * as ViolationReport from "./ViolationReport.ts"

export interface WalkOptions<E> {
  readonly reader: ObjectReader<E>
  readonly base: CommitId
  readonly tip: CommitId
  readonly policy: Policy
  readonly objectFormat: ObjectFormat
  /** Secrets that must not occur anywhere, in any encoding. */
  readonly secrets: ReadonlyArray<Canary>
}

export interface Walked {
  readonly commits: number
  /** Number of distinct changed paths, over all commits. */
  readonly paths: number
  /** The first violations. */
  readonly violations: ReadonlyArray<Violation>
  /** Number of all violations, or a lower bound if one of them ended the check. */
  readonly violationsTotal: number
}

/** A commit that was read and is well formed. */
interface ReadCommit {
  readonly id: CommitId
  readonly tree: string
  readonly parents: ReadonlyArray<string>
}

/** State that the steps of one walk share. */
interface Walk<E> extends WalkOptions<E>, Omit<NewFiles.CheckOptions<E>, "baseFiles"> {
  /** Trees of commits that existed before the run. */
  readonly oldTrees: Map<string, string | undefined>
}

/** Maximum size of a commit that existed before the run. It may have a long message; only its beginning is read. */
const oldCommitBytesMax = 16 * 1024 * 1024

/** Checks the commits. The result is deterministic. */
export const walk = Effect.fnUntraced(function* <E>(options: WalkOptions<E>) {
  const { base, policy, reader, tip } = options
  const ancestor = yield* reader.isAncestor(base, tip)
  const listed = ancestor ? (yield* reader.commits(tip, base, policy.commitsMax + 1)).toReversed() : []
  const report = ViolationReport.make(new Map(listed.map(({ id }, index) => [id, index])))
  const self: Walk<E> = {
    ...options,
    rules: CommitRules.make(policy),
    report,
    known: SecretScan.makeKnown(options.secrets),
    oldTrees: new Map()
  }
  if (!ancestor)
    report.end({ rule: "base-ancestor", detail: `the commits do not descend from ${base}` }, { commit: tip })
  if (listed.length > policy.commitsMax)
    report.end({ rule: "commits", detail: `there are more than ${policy.commitsMax} commits` }, {})
  const commits = yield* readCommits(self, listed)
  const files = NewFiles.make()
  const paths = yield* diffs(self, commits, files)
  yield* ofAddedNames(self, files.added)
  const trees = TreeReader.make(reader, options.objectFormat, policy)
  const baseFiles = yield* Effect.cached(
    Effect.flatMap(oldTree(self, base), (root) =>
      root === undefined ? Effect.succeed(new Set<string>()) : TreeReader.blobsOf(trees, root)
    )
  )
  yield* NewFiles.check({ ...self, baseFiles }, files)
  const secretPaths = yield* Effect.filter(new Set(report.paths()), (path) => hasSecret(self, path))
  return { commits: listed.length, paths, ...report.result(new Set(secretPaths)) } satisfies Walked
})

const readCommits = Effect.fnUntraced(function* <E>(self: Walk<E>, listed: ReadonlyArray<ListedCommit>) {
  const { reader, report } = self
  const commits: Array<ReadCommit> = []
  if (report.ended()) return commits
  const infos = yield* reader.info(listed.map(({ id }) => id))
  const bytesMax = self.policy.messageBytesMax + CommitRules.headerBytesMax
  for (const [index, { id, parents }] of listed.entries()) {
    if (report.ended()) return commits
    const info = infos[index]
    if (info?.type === "commit" && info.bytes > bytesMax) {
      report.end({ rule: "message-bytes", detail: `the commit has ${info.bytes} bytes` }, { commit: id })
      return commits
    }
    const content = info?.type === "commit" ? yield* reader.content(id) : undefined
    const commit = content === undefined ? undefined : GitObject.parseCommit(content, self.objectFormat)
    // The listed parents may come from a graft, but the written ones are pushed.
    if (content === undefined || commit?.parents.join(" ") !== parents.join(" ")) {
      report.end({ rule: "object", detail: "the commit is missing or malformed" }, { commit: id })
      return commits
    }
    yield* ofCommit(self, id, commit, content)
    commits.push({ id, tree: commit.tree, parents: commit.parents })
  }
  return commits
})

const ofCommit = Effect.fnUntraced(function* <E>(
  self: Walk<E>,
  id: CommitId,
  commit: GitObject.Commit,
  content: Uint8Array
) {
  const { policy, report, rules } = self
  if (commit.parents.length === 0)
    report.end({ rule: "root-commit", detail: "the commit has no parent" }, { commit: id })
  for (const found of rules.ofCommit(commit)) report.add(found, { commit: id })
  for (const found of NewFiles.ofKnown(self.known(content))) report.add(found, { commit: id })
  if (policy.secrets === "allow") return
  const findings = yield* SecretScan.scan(content)
  for (const found of NewFiles.ofFindings(findings, "the commit's message or names"))
    report.add(found, { commit: id })
})

/** Returns the tree of a commit outside the walk. */
const oldTree = Effect.fnUntraced(function* <E>({ objectFormat, oldTrees, reader }: Walk<E>, id: string) {
  if (oldTrees.has(id)) return oldTrees.get(id)
  const [info] = yield* reader.info([id])
  const content =
    info?.type === "commit" && info.bytes <= oldCommitBytesMax ? yield* reader.content(id) : undefined
  const tree = content === undefined ? undefined : GitObject.treeOfCommit(content, objectFormat)
  oldTrees.set(id, tree)
  return tree
})

/** Compares the trees of all commits. Returns the number of distinct changed paths. */
const diffs = Effect.fnUntraced(function* <E>(
  self: Walk<E>,
  commits: ReadonlyArray<ReadCommit>,
  files: NewFiles.NewFiles
) {
  const { objectFormat, policy, reader, report, rules } = self
  const trees = TreeReader.make(reader, objectFormat, policy)
  const own = new Map<string, string>(commits.map(({ id, tree }) => [id, tree]))
  const compared = new Set<string>()
  const paths = new Set<string>()
  for (const { id: commit, parents, tree } of commits) {
    for (const parent of parents) {
      if (report.ended()) return paths.size
      const before = own.get(parent) ?? (yield* oldTree(self, parent))
      if (before === undefined) {
        report.end({ rule: "object", detail: `its parent ${parent} is missing` }, { commit })
        return paths.size
      }
      yield* TreeDiff.run(
        {
          trees,
          compared,
          depthMax: policy.depthMax,
          ended: report.ended,
          onFault: (found, path) => report.end(found, { commit, path: path === "" ? undefined : path }),
          onChange: (change) => {
            const { path } = change
            paths.add(path)
            const detail = `more than ${policy.pathsMax} paths are changed`
            if (paths.size > policy.pathsMax) return report.end({ rule: "paths", detail }, { commit })
            for (const found of rules.ofChange(change)) report.add(found, { commit, path })
            files.note(change, commit)
          }
        },
        before,
        tree
      )
    }
  }
  return paths.size
})

/**
 * Scans the names of added files, which can contain secrets too. They are scanned as one text with one name per line.
 */
const ofAddedNames = Effect.fnUntraced(function* <E>(self: Walk<E>, added: ReadonlyMap<string, CommitId>) {
  const { policy, report } = self
  const names = [...added.keys()]
  const text = Buffer.from(names.map((name) => name.replace(/\n/gu, " ")).join("\n"), "latin1")
  const suspected = self.known(text).length > 0 ? names : []
  for (const path of suspected) {
    for (const found of NewFiles.ofKnown(self.known(Buffer.from(path, "latin1"))))
      report.add({ ...found, detail: `${found.detail}, in its name` }, { commit: added.get(path), path })
  }
  if (policy.secrets === "allow" || report.ended()) return
  for (const { kind, line } of yield* SecretScan.scan(text)) {
    const path = names[line - 1]
    const detail = `its name contains text that looks like a secret (${kind})`
    if (path !== undefined) report.add({ rule: "secret", detail }, { commit: added.get(path), path })
  }
})

const hasSecret = Effect.fnUntraced(function* <E>({ known }: Walk<E>, path: string) {
  const bytes = Buffer.from(path, "latin1")
  return known(bytes).length > 0 || (yield* SecretScan.scan(bytes)).length > 0
})
