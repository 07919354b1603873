/**
 * The rules of a policy as pure functions: they return the violations of a changed entry, a commit, or a file's
 * content.
 *
 * A detail quotes nothing that the agent wrote. The path of a violation is made safe to display elsewhere.
 */
import picomatch from "picomatch"
import type { Policy, Rule } from "../../CommitPolicy.ts"
import * as GitObject from "../git/GitObject.ts"
import * as PathNames from "./PathNames.ts"

/** A violation of a rule, without its location. */
export interface Found {
  readonly rule: Rule
  readonly detail: string
}

/** An entry that is not a tree. */
export interface Entry {
  readonly mode: string
  readonly id: string
}

/** A changed path, with its entry in a parent and in the commit. */
export interface Change {
  readonly path: string
  readonly before: Entry | undefined
  readonly after: Entry | undefined
}

/** The rules of a policy, prepared for many checks. */
export type Rules = ReturnType<typeof make>

/** Maximum length of a path (`PATH_MAX`). It also limits the text that patterns are matched against. */
export const pathBytesMax = 4096

/** Maximum size of a pointer. Git LFS neither writes nor reads longer ones. */
const pointerBytesMax = 1024

/** Maximum size of a commit's header, which contains signatures and the tags of merges. */
export const headerBytesMax = 64 * 1024

export const make = (policy: Policy) => {
  const isProtected = protectedBy(policy.protectedPaths)
  const ofPath = (path: string): ReadonlyArray<Found> => [
    ...when(
      PathNames.entersDotGit(path),
      "dot-git",
      "a name in it can refer to the repository's own directory"
    ),
    ...when(PathNames.hasControlCharacter(path), "control-character", "the path contains a control character")
  ]
  return {
    ofChange: (change: Change): ReadonlyArray<Found> => {
      const { after, path } = change
      return [
        ...when(after !== undefined && kindOf(after) === "odd", "mode", "git does not write this mode"),
        // An existing entry may be deleted.
        ...(after === undefined ? [] : ofPath(path)),
        ...when(isProtected(path, change), "protected-path", protectedDetail(change)),
        ...ofSubmodule(policy, change),
        ...when(PathNames.isLfsConfig(path), "lfs-config", "it tells Git LFS where to send credentials")
      ]
    },
    ofCommit: (commit: GitObject.Commit) => [...ofMessage(policy, commit), ...ofAuthors(policy, commit)],
    ofLink: (path: string, target: string): ReadonlyArray<Found> => {
      const fault = PathNames.linkFault(path, target)
      return fault === undefined || (policy.symlinks === "allow" && outwards.has(fault))
        ? []
        : [{ rule: "symlink", detail: linkDetails[fault] }]
    },
    /** Checks the content of a file, but not for secrets. */
    ofContent: (content: Uint8Array) =>
      when(
        policy.lfsPointers === "refuse" && isPointer(content),
        "lfs-pointer",
        "it is a Git LFS pointer, and the relay does not transfer its object"
      ),
    ofGitmodules: (content: Uint8Array) =>
      when(
        /[^\t\n\x20-\x7e\x80-\xff]/u.test(Buffer.from(content).toString("latin1")),
        "submodule",
        "it contains a control character, which programs read in different ways"
      )
  }
}

const when = (applies: boolean, rule: Rule, detail: string): ReadonlyArray<Found> =>
  applies ? [{ rule, detail }] : []

const kindOf = (entry: Entry | undefined) => (entry === undefined ? undefined : GitObject.kindOf(entry.mode))

/** Matches a path as it is written, and as a file system may fold it. */
const protectedBy = (patterns: ReadonlyArray<string>) => {
  const options = { dot: true, nocase: true, windows: false } as const
  const matches = patterns.length === 0 ? () => false : picomatch([...patterns], options)
  // In place of such a directory, a link would bring in files from other paths.
  const roots = patterns.map((pattern) => `${PathNames.fold(picomatch.scan(pattern).base)}/`)
  return (path: string, { after }: Change): boolean => {
    const folded = PathNames.fold(path)
    return (
      [PathNames.textOf(path), folded].some((text) => matches(oneLine(text))) ||
      (["symlink", "submodule"].includes(kindOf(after) ?? "") &&
        roots.some((root) => root.startsWith(`${folded}/`)))
    )
  }
}

/** Replaces line breaks, because a pattern's `*` stops at them. */
const oneLine = (text: string): string => text.replace(/[\n\r\u2028\u2029]/gu, "_")

const protectedDetail = ({ after, before }: Change): string =>
  `the path is protected, and it is ${before === undefined ? "added" : after === undefined ? "deleted" : "changed"}`

const ofSubmodule = (policy: Policy, { after, before, path }: Change): ReadonlyArray<Found> => {
  const gitmodules = PathNames.isGitmodules(path)
  const plain = path === ".gitmodules" && (after === undefined || kindOf(after) === "file")
  if (gitmodules && !(plain && policy.submodules === "allow"))
    return [{ rule: "submodule", detail: "it defines where submodules come from" }]
  const is = [before, after].some((entry) => kindOf(entry) === "submodule")
  return when(is && policy.submodules === "refuse", "submodule", "a submodule is added, moved or removed")
}

const ofMessage = (policy: Policy, commit: GitObject.Commit): ReadonlyArray<Found> => {
  const where = (["message", "author", "committer"] as const).filter((part) => !isPlain(commit[part]))
  const places = where.length === 0 && !isPlain(commit.header) ? ["header"] : where
  return [
    ...when(
      places.length > 0,
      "message",
      `there are control characters in these parts of the commit: ${places.join(", ")}`
    ),
    ...when(
      commit.message.length > policy.messageBytesMax,
      "message-bytes",
      `the message has ${commit.message.length} bytes, and ${policy.messageBytesMax} are allowed`
    )
  ]
}

const isPlain = (text: string): boolean => !/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/u.test(text)

const ofAuthors = ({ authors }: Policy, commit: GitObject.Commit): ReadonlyArray<Found> => {
  if (authors === "any") return []
  const strangers = (["author", "committer"] as const).filter(
    (who) => !authors.includes(PathNames.textOf(commit[who]))
  )
  return when(
    strangers.length > 0,
    "author",
    `the ${strangers.join(" and the ")} must be listed in the policy`
  )
}

/** Faults of a link that a policy may allow. */
const outwards: ReadonlySet<PathNames.LinkFault> = new Set(["absolute", "leaves", "winding"])

const linkDetails: Readonly<Record<PathNames.LinkFault, string>> = {
  empty: "the link has no target",
  long: `the link's target has more than ${PathNames.linkTargetBytesMax} bytes`,
  nul: "the link's target contains a NUL",
  absolute: "the link points to an absolute path",
  winding: "the link goes up again after it has gone down, and so may lead anywhere",
  leaves: "the link leads out of the repository",
  "dot-git": "the link leads into a .git"
}

const isPointer = (content: Uint8Array): boolean =>
  content.byteLength <= pointerBytesMax &&
  /^version https?:\/\/(?:git-lfs|hawser)\.github\.com\/spec\//u.test(Buffer.from(content).toString("latin1"))

const fewer = (what: string, field: string) =>
  `Have the agent ${what}, or have the owner raise \`${field}\` in the policy.`

const dropped = "remove the change from every commit that has it"

/** Remedy for a violation of each rule: a change that the agent or the owner of the policy must make. */
export const remedies: Readonly<Record<Rule, string>> = {
  branch: "Name another branch.",
  "base-ancestor": "Have the agent start from the commit that it was given, without rewriting it.",
  "root-commit": "Have the agent commit on top of the commit that it was given, without a new root commit.",
  object: "Have the agent recreate the commits with git itself.",
  commits: fewer("squash its commits", "commitsMax"),
  paths: fewer("change fewer files", "pathsMax"),
  trees: fewer("change fewer directories in fewer commits", "treesMax"),
  "tree-bytes": fewer("put fewer files into one directory", "treeBytesMax` or `treesBytesMax"),
  depth: fewer("nest directories less deeply", "depthMax"),
  "path-bytes": "Have the agent give it a shorter path, in every commit.",
  "blob-bytes": fewer("remove the file from every commit", "blobBytesMax"),
  "total-bytes": fewer("remove large files from every commit", "totalBytesMax"),
  "message-bytes": fewer("write a shorter message", "messageBytesMax"),
  message: "Have the agent rewrite the commit without them.",
  author: "Have the agent commit under a name in `authors` of the policy, or have the owner add this name.",
  mode: "Have the agent commit plain files, executable files, links and directories only.",
  "dot-git": "Have the agent give it another name, in every commit.",
  "control-character": "Have the agent give it another name, in every commit.",
  "protected-path": `Have the agent ${dropped}, or have the owner remove the path from \`protectedPaths\` of the policy.`,
  submodule: `Have the agent ${dropped}, or have the owner set \`submodules\` of the policy to "allow"; other spellings of .gitmodules are always refused.`,
  "lfs-config": `Have the agent ${dropped}; no policy allows it.`,
  symlink: `Have the agent ${dropped}, or have the owner set \`symlinks\` of the policy to "allow"; a link that is malformed or leads into a .git is always refused.`,
  "lfs-pointer": `Have the agent ${dropped}, or have the owner set \`lfsPointers\` of the policy to "allow" and upload the object.`,
  secret:
    'Have the agent remove it from every commit, and revoke it if it is real. If it is not a secret, the owner can set `secrets` of the policy to "allow".',
  "known-secret": "Have the agent remove it from every commit, and replace the secret; no policy allows it."
}
