/**
 * The rules of a policy as pure functions: what one changed entry, one commit, one file's content has against it.
 *
 * A detail repeats nothing that the agent wrote; where a violation is, is said by its path, which is made fit to be
 * shown elsewhere.
 */
import picomatch from "picomatch"
import type { Policy, Rule } from "../../CommitPolicy.ts"
import * as GitObject from "../git/GitObject.ts"
import * as PathNames from "./PathNames.ts"

/** Something that a rule has against it. */
export interface Found {
  readonly rule: Rule
  readonly detail: string
}

/** An entry that is no tree. */
export interface Entry {
  readonly mode: string
  readonly id: string
}

/** One path, with what is there at a parent and in the commit. */
export interface Change {
  readonly path: string
  readonly before: Entry | undefined
  readonly after: Entry | undefined
}

/** What a policy says of changes, ready to be asked often. */
export type Rules = ReturnType<typeof make>

/** No system takes longer ones (`PATH_MAX`), and no expression of a pattern has to be held against them. */
export const pathBytesMax = 4096

/** Git LFS writes no longer pointers, and reads none. */
export const pointerBytesMax = 1024

/** Of a commit's header: signatures and the tags of merges are in it. */
export const headerBytesMax = 64 * 1024

export const make = (policy: Policy) => {
  const isProtected = protectedBy(policy.protectedPaths)
  const ofPath = (path: string): ReadonlyArray<Found> => [
    ...when(
      PathNames.entersDotGit(path),
      "dot-git",
      "a name in it is one for the repository's own directory"
    ),
    ...when(
      PathNames.hasControlCharacter(path),
      "control-character",
      "there is a control character in the path"
    )
  ]
  return {
    ofChange: (change: Change): ReadonlyArray<Found> => {
      const { after, path } = change
      return [
        ...when(after !== undefined && kindOf(after) === "odd", "mode", "git does not write this mode"),
        // What was there all along may be taken away.
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
    /** Of a file's own content, except for what looks like a secret. */
    ofContent: (content: Uint8Array) =>
      when(
        policy.lfsPointers === "refuse" && isPointer(content),
        "lfs-pointer",
        "it is a Git LFS pointer, and its object is not carried"
      ),
    ofGitmodules: (content: Uint8Array) =>
      when(
        /[^\t\n\x20-\x7e\x80-\xff]/u.test(Buffer.from(content).toString("latin1")),
        "submodule",
        "there is a control character in it, which programs read in different ways"
      )
  }
}

const when = (applies: boolean, rule: Rule, detail: string): ReadonlyArray<Found> =>
  applies ? [{ rule, detail }] : []

const kindOf = (entry: Entry | undefined) => (entry === undefined ? undefined : GitObject.kindOf(entry.mode))

/** In the spelling that it has, and in the one that a file system makes of it. */
const protectedBy = (patterns: ReadonlyArray<string>) => {
  const options = { dot: true, nocase: true, windows: false } as const
  const matches = patterns.length === 0 ? () => false : picomatch([...patterns], options)
  // In place of such a directory a link would bring in files of other paths.
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

/** A pattern's `*` stops at the end of a line. */
const oneLine = (text: string): string => text.replace(/[\n\r\u2028\u2029]/gu, "_")

const protectedDetail = ({ after, before }: Change): string =>
  `the path is protected, and it is ${before === undefined ? "added" : after === undefined ? "deleted" : "changed"}`

const ofSubmodule = (policy: Policy, { after, before, path }: Change): ReadonlyArray<Found> => {
  const gitmodules = PathNames.isGitmodules(path)
  const plain = path === ".gitmodules" && (after === undefined || kindOf(after) === "file")
  if (gitmodules && !(plain && policy.submodules === "allow"))
    return [{ rule: "submodule", detail: "it says where submodules come from" }]
  const is = [before, after].some((entry) => kindOf(entry) === "submodule")
  return when(is && policy.submodules === "refuse", "submodule", "a submodule is added, moved or taken away")
}

const ofMessage = (policy: Policy, commit: GitObject.Commit): ReadonlyArray<Found> => {
  const where = (["message", "author", "committer"] as const).filter((part) => !isPlain(commit[part]))
  const places = where.length === 0 && !isPlain(commit.header) ? ["header"] : where
  return [
    ...when(
      places.length > 0,
      "message",
      `there are control characters in the commit's ${places.join(", ")}`
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
    `the ${strangers.join(" and the ")} must be one that is allowed`
  )
}

/** What a policy may let pass. */
const outwards: ReadonlySet<PathNames.LinkFault> = new Set(["absolute", "leaves", "winding"])

const linkDetails: Readonly<Record<PathNames.LinkFault, string>> = {
  empty: "the link points nowhere",
  long: `the link's target has more than ${PathNames.linkTargetBytesMax} bytes`,
  nul: "the link's target has a NUL in it",
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

const dropped = "drop the change from every commit that has it"

/** What the agent, or whoever owns the policy, is to change. */
export const remedies: Readonly<Record<Rule, string>> = {
  branch: "Name another branch.",
  "base-ancestor": "Have the agent start from the commit that it was given, without rewriting it.",
  "root-commit": "Have the agent commit on top of what it was given, and start no history of its own.",
  object: "Have the agent make the commits anew with git itself.",
  commits: fewer("squash its commits", "commitsMax"),
  paths: fewer("change fewer files", "pathsMax"),
  trees: fewer("change fewer directories in fewer commits", "treesMax"),
  "tree-bytes": fewer("put fewer files into one directory", "treeBytesMax` or `treesBytesMax"),
  depth: fewer("nest directories less deeply", "depthMax"),
  "path-bytes": "Have the agent give it a shorter path, in every commit.",
  "blob-bytes": fewer("take the file out of every commit", "blobBytesMax"),
  "total-bytes": fewer("take large files out of every commit", "totalBytesMax"),
  "message-bytes": fewer("write a shorter message", "messageBytesMax"),
  message: "Have the agent write the commit anew without them.",
  author:
    "Have the agent commit in a name that `authors` of the policy lists, or have the owner add this one.",
  mode: "Have the agent commit plain files, executable files, links and directories only.",
  "dot-git": "Have the agent give it another name, in every commit.",
  "control-character": "Have the agent give it another name, in every commit.",
  "protected-path": `Have the agent ${dropped}, or have the owner take the path out of \`protectedPaths\` of the policy.`,
  submodule: `Have the agent ${dropped}, or have the owner set \`submodules\` of the policy to "allow"; other spellings of .gitmodules never pass.`,
  "lfs-config": `Have the agent ${dropped}; no policy lets it pass.`,
  symlink: `Have the agent ${dropped}, or have the owner set \`symlinks\` of the policy to "allow"; what is malformed or leads into a .git never passes.`,
  "lfs-pointer": `Have the agent ${dropped}, or have the owner set \`lfsPointers\` of the policy to "allow" and upload the object.`,
  secret:
    'Have the agent take it out of every commit, and revoke it if it is one. Where it is none, the owner may set `secrets` of the policy to "allow".',
  "known-secret":
    "Have the agent take it out of every commit, and replace the secret: no policy lets it pass."
}
