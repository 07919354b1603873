/**
 * A branch into a repository that root owns, by a host process that is root: as files, and without git.
 *
 * No container runs as root, and no git of the host opens a repository that an agent may have written. So a pack of the
 * relay's own making, and a reference of one line, are put where they belong. Every directory on the way is opened by
 * descriptor from the one that is held, never over a link, and has to be root's and writable to nobody else: nothing
 * can be put in its place meanwhile, and nothing that was planted is read as more than a name. The reference is locked
 * as git locks it, and changed only if it stands where it is expected.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import { recover } from "@cogni/sandbox-host-files/Descriptor"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect, Exit, type Scope } from "effect"
import { constants } from "node:fs"
import { chmod, copyFile, link, mkdir, open, rename, rm } from "node:fs/promises"
import { join } from "node:path"
import { OriginUnavailable, RelayFailed } from "../../GitRelayError.ts"
import type { BranchName, CommitId } from "../../Refs.ts"
import { command, oneLine } from "../git/ShownText.ts"
import { PushRefusal } from "./PushRefusal.ts"

export interface RootDelivery {
  /** A pack and its index, in a directory of the relay's own. */
  readonly packed: { readonly directory: string; readonly name: string }
  readonly branch: BranchName
  readonly tip: CommitId
  /** Where the branch stands; absent: nowhere. */
  readonly expected: string | undefined
}

/** A loose reference is one line. */
const refBytesMax = 1024

const packedRefsBytesMax = 256 * 1024 * 1024

/**
 * Whatever the umask: a directory that a group may write would be refused the next time, and what others may not read
 * no container could. How far the repository is open at all, its own directory says.
 */
const modes = { directory: 0o755, ref: 0o644 }

/** Objects first, then the reference: what is broken off in between has added nothing that can be seen. */
export const write = Effect.fnUntraced(
  function* (
    repository: HeldDirectory.HeldDirectory,
    { branch, expected, packed, tip }: RootDelivery
  ): Effect.fn.Return<void, OriginUnavailable | PushRefusal | RelayFailed | HostPathRefused, Scope.Scope> {
    yield* requireRoots(repository, repository)
    yield* addPack(yield* below(repository, ["objects", "pack"]), packed)
    const parts = ["refs", "heads", ...branch.split("/")]
    const directory = yield* below(repository, parts.slice(0, -1))
    yield* setRef({ repository, directory, name: parts.at(-1)!, ref: parts.join("/"), tip, expected })
  },
  (effect) =>
    effect.pipe(
      Effect.catchTag("HostPathRefused", (refused) => Effect.fail(notOpened(refused))),
      Effect.scoped,
      // Some files of milliseconds: once begun it ends, so that no lock is left.
      Effect.uninterruptible
    )
)

/** Each made where it is missing, and held; the last of them. */
const below = Effect.fnUntraced(function* (
  repository: HeldDirectory.HeldDirectory,
  names: ReadonlyArray<string>
) {
  let directory = repository
  for (const name of names) {
    const path = HeldDirectory.at(directory, name)
    const isNew = yield* written(() =>
      mkdir(path, { mode: modes.directory }).then(() => true, recover(["EEXIST"], false))
    )
    const made = yield* HeldDirectory.child(directory, name)
    yield* requireRoots(made, repository)
    if (isNew) yield* written(() => chmod(made.access, modes.directory))
    directory = made
  }
  return directory
})

const requireRoots = (
  { mode, path, userId }: HeldDirectory.HeldDirectory,
  repository: HeldDirectory.HeldDirectory
) =>
  userId === 0 && (mode & 0o022) === 0
    ? Effect.void
    : new OriginUnavailable({
        fault: "forbidden",
        detail: `belongs to root, but others may write to ${oneLine(path)}`,
        remedy:
          `Let only root write there (${command("chmod -R go-w", repository.path)}), or give the whole ` +
          "repository to an ordinary user (chown -R)"
      })

/** Under its name once it is whole, the index last: git looks for that first. */
const addPack = (
  directory: HeldDirectory.HeldDirectory,
  { directory: source, name }: RootDelivery["packed"]
) =>
  written(async () => {
    for (const ending of ["pack", "idx"]) {
      // A name that git's own cleaning knows for a leftover.
      const temporary = HeldDirectory.at(directory, `tmp_${ending}_${crypto.randomUUID()}`)
      try {
        await copyFile(join(source, `${name}.${ending}`), temporary, constants.COPYFILE_EXCL)
        await forced(temporary)
        await link(temporary, HeldDirectory.at(directory, `${name}.${ending}`)).catch(
          recover(["EEXIST"], undefined)
        )
      } finally {
        await rm(temporary, { force: true })
      }
    }
  })

const forced = async (path: string): Promise<void> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    await file.chmod(0o444)
    await file.sync()
  } finally {
    await file.close()
  }
}

interface Ref extends Pick<RootDelivery, "tip" | "expected"> {
  readonly repository: HeldDirectory.HeldDirectory
  /** Where a file of its own lies, under its name. */
  readonly directory: HeldDirectory.HeldDirectory
  readonly name: string
  readonly ref: string
}

const setRef = Effect.fnUntraced(function* (to: Ref) {
  const { directory, expected, name, ref, tip } = to
  const lock = HeldDirectory.at(directory, `${name}.lock`)
  const locked = yield* written(() => open(lock, "wx", modes.ref).catch(recover(["EEXIST"], undefined)))
  if (locked === undefined)
    return yield* raced(
      `${ref}.lock is there`,
      "Wait for the git that is at work there; if none is, remove that file, then try again"
    )
  yield* Effect.gen(function* () {
    yield* written(async () => {
      try {
        await locked.writeFile(`${tip}\n`)
        await locked.chmod(modes.ref)
        await locked.sync()
      } finally {
        await locked.close()
      }
    })
    if ((yield* standing(to)) !== expected)
      return yield* raced(
        "the branch has just been moved or removed",
        "Look at it, then try again, or push under another name (relay retry --branch)"
      )
    yield* written(() => rename(lock, HeldDirectory.at(directory, name)))
  }).pipe(
    // After the rename the name is free, and another git's as soon as one takes it.
    Effect.onExit((exit) =>
      Exit.isSuccess(exit) ? Effect.void : Effect.ignore(written(() => rm(lock, { force: true })))
    )
  )
})

/** As git finds it: a file of its own, or a line among the packed ones. */
const standing = Effect.fnUntraced(function* ({ directory, name, ref, repository }: Ref) {
  if ((yield* HeldDirectory.kindOf(directory, name)) !== undefined)
    return (yield* HeldDirectory.readText(directory, name, refBytesMax))?.trimEnd() ?? "something else"
  const text = yield* HeldDirectory.readText(repository, "packed-refs", packedRefsBytesMax)
  const line = text?.split("\n").find((one) => one.endsWith(` ${ref}`))
  return line?.slice(0, -ref.length - 1)
})

const raced = (detail: string, remedy: string) =>
  new PushRefusal({ fault: "raced", detail, remedy, isRetryable: true })

const notOpened = (refused: HostPathRefused): OriginUnavailable | RelayFailed =>
  refused.problem === "not_a_directory"
    ? new OriginUnavailable({
        fault: "unsupported",
        detail: `has something else in place of a directory: ${oneLine(refused.path)}`,
        remedy: "Repair that if you trust the repository, or name one that is whole"
      })
    : failed(refused.message)

const failed = (message: string) =>
  new RelayFailed({
    detail: `the branch could not be written: ${oneLine(message)}`,
    remedy: "Look at the repository, its disk and its permissions, then try again (relay retry)",
    isRetryable: true
  })

const written = <A>(run: () => Promise<A>) => attempt(run, failed)
