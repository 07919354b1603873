/**
 * A branch into a repository that root owns, by a host process that is root: as files, and without git.
 *
 * No container runs as root, and no git of the host opens a repository that an agent may have written. So a pack of the
 * relay's own making, and a reference of one line, are put where they belong. Every directory on the way is opened by
 * descriptor from the one that is held, never over a link, and has to be root's and writable to nobody else: nothing
 * can be put in its place meanwhile, and nothing that was planted is read as more than a name. The reference is locked
 * as git locks it, and changed only if it stands where it is expected.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { Place } from "@cogni/sandbox-host-files/HostPath"
import { Effect } from "effect"
import { constants } from "node:fs"
import { chmod, copyFile, link, mkdir, open, rename, rm } from "node:fs/promises"
import { join } from "node:path"
import { OriginUnavailable, RelayFailed } from "../../GitRelayError.ts"
import type { BranchName, CommitId } from "../../Refs.ts"
import * as HeldDirectory from "./HeldDirectory.ts"
import { command, oneLine } from "../git/ShownText.ts"

export interface RootDelivery {
  /** A pack and its index, in a directory of the relay's own. */
  readonly packed: { readonly directory: string; readonly name: string }
  readonly branch: BranchName
  readonly tip: CommitId
  /** Where the branch stands; absent: nowhere. */
  readonly expected: string | undefined
}

type Written =
  | { readonly _tag: "Taken" }
  | {
      readonly _tag: "Refused"
      readonly fault: "raced"
      readonly detail: string
      readonly remedy: string
      readonly isRetryable: boolean
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
export const write = (
  repository: Place,
  delivery: RootDelivery
): Effect.Effect<Written, OriginUnavailable | RelayFailed> =>
  // Some files of milliseconds: once begun it ends, so that no lock is left.
  Effect.uninterruptible(Effect.tryPromise({ try: () => written(repository, delivery), catch: faultOf }))

const written = async (
  repository: Place,
  { branch, expected, packed, tip }: RootDelivery
): Promise<Written> => {
  requireRoots(repository, repository)
  const into = { repository, from: repository }
  await below(into, ["objects", "pack"], (directory) => addPack(directory, packed))
  const parts = ["refs", "heads", ...branch.split("/")]
  return below(into, parts.slice(0, -1), (directory) =>
    setRef(repository, directory, { name: parts.at(-1)!, ref: parts.join("/"), tip, expected })
  )
}

/** Each made where it is missing, opened without following a link, and closed after `use`. */
const below = async <A>(
  { from, repository }: { readonly from: Place; readonly repository: Place },
  [name, ...rest]: ReadonlyArray<string>,
  use: (directory: Place) => Promise<A>
): Promise<A> => {
  if (name === undefined) return use(from)
  const isNew = await mkdir(HeldDirectory.within(from, name), { mode: modes.directory }).then(
    () => true,
    (thrown: unknown) => (unlessThere(thrown), false)
  )
  const next = await HeldDirectory.child(from, name)
  try {
    requireRoots(next, repository)
    if (isNew) await chmod(next.access, modes.directory)
    return await below({ from: next, repository }, rest, use)
  } finally {
    await next.close()
  }
}

class NotRootsAlone extends Error {
  /** Every directory on the way has to be closed, so it is told at once. */
  readonly repository: string
  constructor(path: string, repository: string) {
    super(path)
    this.repository = repository
  }
}

const requireRoots = ({ path, stats }: Place, repository: Place): void => {
  if (stats.uid !== 0n || (stats.mode & 0o022n) !== 0n) throw new NotRootsAlone(path, repository.path)
}

/** Under its name once it is whole, the index last: git looks for that first. */
const addPack = async (
  directory: Place,
  { directory: source, name }: RootDelivery["packed"]
): Promise<void> => {
  for (const ending of ["pack", "idx"]) {
    // A name that git's own cleaning knows for a leftover.
    const temporary = HeldDirectory.within(directory, `tmp_${ending}_${crypto.randomUUID()}`)
    try {
      await copyFile(join(source, `${name}.${ending}`), temporary, constants.COPYFILE_EXCL)
      await forced(temporary)
      await link(temporary, HeldDirectory.within(directory, `${name}.${ending}`)).catch(unlessThere)
    } finally {
      await rm(temporary, { force: true })
    }
  }
}

const forced = async (path: string): Promise<void> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    await file.chmod(0o444)
    await file.sync()
  } finally {
    await file.close()
  }
}

const setRef = async (
  repository: Place,
  directory: Place,
  {
    expected,
    name,
    ref,
    tip
  }: {
    readonly name: string
    readonly ref: string
    readonly tip: string
    readonly expected: string | undefined
  }
): Promise<Written> => {
  const lock = HeldDirectory.within(directory, `${name}.lock`)
  let locked
  try {
    locked = await open(lock, "wx", modes.ref)
  } catch (thrown) {
    if (!Descriptor.isErrno(thrown, "EEXIST")) throw thrown
    return raced(
      `${ref}.lock is there`,
      "Wait for the git that is at work there; if none is, remove that file, then try again"
    )
  }
  let isOurs = true
  try {
    try {
      await locked.writeFile(`${tip}\n`)
      await locked.chmod(modes.ref)
      await locked.sync()
    } finally {
      await locked.close()
    }
    const there = await standing(repository, directory, name, ref)
    if (there !== expected)
      return raced(
        "the branch has just been moved or removed",
        "Look at it, then try again, or push under another name (relay retry --branch)"
      )
    await rename(lock, HeldDirectory.within(directory, name))
    isOurs = false
    return { _tag: "Taken" }
  } finally {
    // After the rename the name is free, and another git's as soon as one takes it.
    if (isOurs) await rm(lock, { force: true })
  }
}

/** As git finds it: a file of its own, or a line among the packed ones. */
const standing = async (
  repository: Place,
  directory: Place,
  name: string,
  ref: string
): Promise<string | undefined> => {
  const there = await HeldDirectory.peek(directory, name)
  if (there !== undefined) {
    await there.close()
    return (await HeldDirectory.readPlain(directory, name, refBytesMax))?.trimEnd() ?? "something else"
  }
  const text = await HeldDirectory.readPlain(repository, "packed-refs", packedRefsBytesMax)
  const line = text?.split("\n").find((one) => one.endsWith(` ${ref}`))
  return line?.slice(0, -ref.length - 1)
}

const raced = (detail: string, remedy: string): Written => ({
  _tag: "Refused",
  fault: "raced",
  detail,
  remedy,
  isRetryable: true
})

const unlessThere = (thrown: unknown): void => {
  if (!Descriptor.isErrno(thrown, "EEXIST")) throw thrown
}

const faultOf = (thrown: unknown): OriginUnavailable | RelayFailed => {
  if (thrown instanceof NotRootsAlone)
    return new OriginUnavailable({
      fault: "forbidden",
      detail: `belongs to root, but others may write to ${oneLine(thrown.message)}`,
      remedy:
        `Let only root write there (${command("chmod -R go-w", thrown.repository)}), or give the whole ` +
        "repository to an ordinary user (chown -R)",
      isRetryable: false
    })
  if (Descriptor.isErrno(thrown, "ENOTDIR"))
    return new OriginUnavailable({
      fault: "unsupported",
      detail: `has something else in place of a directory: ${oneLine((thrown as Error).message)}`,
      remedy: "Repair that if you trust the repository, or name one that is whole",
      isRetryable: false
    })
  return new RelayFailed({
    detail: `the branch could not be written: ${oneLine(messageOf(thrown))}`,
    remedy: "Look at the repository, its disk and its permissions, then try again (relay retry)",
    isRetryable: true
  })
}
