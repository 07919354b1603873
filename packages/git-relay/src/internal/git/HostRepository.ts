/**
 * Creates repositories on the host: bare ones for the relay, and the one that an agent gets.
 *
 * Objects move between repositories as whole packs. They are linked between repositories of the host, but copied into a
 * workspace, because the owner of a linked file owns all of its names.
 */
import { isErrno, recover } from "@cogni/sandbox-host-files/Descriptor"
import { attemptSteps } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect } from "effect"
import { mkdir, readdir, stat } from "node:fs/promises"
import { join } from "node:path"
import { RelayFailed } from "../../GitRelayError.ts"
import { CommitId, type ObjectFormat } from "../../Refs.ts"
import * as HostGit from "./HostGit.ts"
import { attemptWhole, giveTo, unusable } from "./RelayFiles.ts"

/**
 * References in a relay's repository: the base, the tip that the agent left, and the branch that exists at the origin.
 */
export const refs = { base: "refs/relay/base", tip: "refs/relay/tip", there: "refs/relay/there" } as const

export const initBare = (gitDirectory: string, objectFormat: ObjectFormat) =>
  HostGit.runOk({
    argv: ["init", "-q", "--bare", "--template=", `--object-format=${objectFormat}`, "--", gitDirectory]
  })

/**
 * Links or copies the packs of one repository into another, and copies its shallow boundary. An interruption waits for
 * the pack that is being copied: the next steps remove the repository.
 */
export const transplant = (from: string, to: string, how: "link" | "copy") =>
  attemptSteps(
    async (signal) => {
      const source = join(from, "objects", "pack")
      const target = join(to, "objects", "pack")
      await OwnFiles.makeDirectory(target)
      // The index comes last, because git uses a pack once its index exists.
      const names = (await readdir(source)).filter((name) => /^pack-[0-9a-f]+\.(?:pack|idx|rev)$/u.test(name))
      for (const name of names.toSorted((a, b) => Number(a.endsWith(".idx")) - Number(b.endsWith(".idx")))) {
        signal.throwIfAborted()
        await (how === "link" ? linkOrCopy : OwnFiles.copy)(join(source, name), join(target, name))
      }
      signal.throwIfAborted()
      await OwnFiles.copy(join(from, "shallow"), join(to, "shallow")).catch(recover(["ENOENT"], undefined))
    },
    (message) => unusable(to, message)
  )

/** Returns the names of the files in a repository's pack directory, including packs that are still being written. */
export const packsOf = (gitDirectory: string): Promise<ReadonlyArray<string>> =>
  readdir(join(gitDirectory, "objects", "pack")).catch(() => [])

/** Returns the size of a repository's packs together, in bytes. */
export const packedBytes = async (gitDirectory: string): Promise<number> => {
  const names = await packsOf(gitDirectory)
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(gitDirectory, "objects", "pack", name)).then(
        ({ size }) => size,
        () => 0
      )
    )
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}

/** Returns the ID of a named object, or `undefined` if it does not exist. */
export const objectAt = (gitDirectory: string, name: string) =>
  Effect.map(
    HostGit.run({
      argv: ["rev-parse", "--verify", "--quiet", "--end-of-options", name],
      gitDirectory
    }),
    ({ exitCode, stdout }) => (exitCode === 0 ? stdout.toString("latin1").trim() : undefined)
  )

/** Returns the commit of a reference. Fails if there is no such commit. */
export const commitAt = Effect.fnUntraced(function* (gitDirectory: string, ref: string) {
  const id = yield* objectAt(gitDirectory, `${ref}^{commit}`)
  if (id === undefined) {
    return yield* new RelayFailed({
      detail: `${ref} is not a commit`,
      remedy: "Try again from the beginning",
      isRetryable: true
    })
  }
  return CommitId.make(id)
})

/** Whether one commit is an ancestor of another, or the same. */
export const isAncestor = (gitDirectory: string, ancestor: string, descendant: string) =>
  Effect.map(
    HostGit.run({ gitDirectory, argv: ["merge-base", "--is-ancestor", ancestor, descendant] }),
    ({ exitCode }) => exitCode === 0
  )

export const setRef = (gitDirectory: string, ref: string, commit: string) =>
  HostGit.runOk({
    argv: ["update-ref", "--no-deref", ref, commit],
    gitDirectory
  })

/** Lists the commits whose parents are missing. The repository must not have such a list yet. */
export const setShallow = (gitDirectory: string, commits: ReadonlyArray<CommitId>) =>
  attemptWhole(gitDirectory, () =>
    OwnFiles.create(join(gitDirectory, "shallow"), commits.map((id) => `${id}\n`).join(""), 0o644)
  )

/** Default author of an agent's commits. */
const author = { name: "Cogni Sandbox", email: "agent@sandbox.invalid" } as const

interface WorkspaceOptions {
  readonly from: string
  readonly path: string
  readonly objectFormat: ObjectFormat
  readonly baseBranch: string
  readonly baseCommit: CommitId
  readonly branch: string
  readonly remoteUrl: string | undefined
  readonly user: { readonly userId: number; readonly groupId: number } | undefined
}

/** Creates the repository of an agent: at the base, on the run's own branch, without any credential. */
export const workspace = Effect.fnUntraced(function* (options: WorkspaceOptions) {
  const { baseBranch, baseCommit, branch, from, path } = options
  const repository = join(path, "repo")
  const gitDirectory = join(repository, ".git")
  yield* attemptWhole(path, () => mkdir(path, { mode: 0o755 }))
  yield* HostGit.runOk({
    argv: [
      "init",
      "-q",
      "--template=",
      `--object-format=${options.objectFormat}`,
      `--initial-branch=${branch}`,
      "--",
      repository
    ]
  })
  yield* transplant(from, gitDirectory, "copy")
  yield* attemptWhole(gitDirectory, () =>
    OwnFiles.append(join(gitDirectory, "config"), configurationOf(options))
  )
  yield* HostGit.runOk(
    { argv: ["update-ref", "--stdin"], gitDirectory },
    `create refs/heads/${branch} ${baseCommit}\ncreate refs/remotes/origin/${baseBranch} ${baseCommit}\n`
  )
  yield* HostGit.runOk({
    argv: ["read-tree", "-u", "--reset", baseCommit],
    gitDirectory,
    workTree: repository
  })
  if (options.user !== undefined) yield* giveTo(path, options.user)
})

const configurationOf = ({ baseBranch, branch, remoteUrl }: WorkspaceOptions): string =>
  [
    "[user]",
    `\tname = ${quoted(author.name)}`,
    `\temail = ${quoted(author.email)}`,
    // git's maintenance must not run beside the agent, nor be interrupted when the agent ends.
    "[gc]",
    "\tauto = 0",
    "[maintenance]",
    "\tauto = false",
    ...(remoteUrl === undefined
      ? []
      : [
          '[remote "origin"]',
          `\turl = ${quoted(remoteUrl)}`,
          `\tfetch = +refs/heads/${baseBranch}:refs/remotes/origin/${baseBranch}`,
          `[branch ${quoted(branch)}]`,
          "\tremote = origin",
          `\tmerge = refs/heads/${baseBranch}`
        ]),
    ""
  ].join("\n")

/** Quotes a value for git's configuration. */
const quoted = (text: string): string =>
  `"${text.replace(/[\\"]/gu, String.raw`\$&`).replace(/[\r\n\0]/gu, " ")}"`

const linkOrCopy = (from: string, to: string) =>
  OwnFiles.link(from, to).catch((thrown: unknown) => {
    if (isErrno(thrown, "EXDEV", "EPERM", "EMLINK")) return OwnFiles.copy(from, to)
    if (!isErrno(thrown, "EEXIST")) throw thrown
  })
