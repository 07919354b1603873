/**
 * Adds a branch to a repository that root owns, from a host process of root: as files, and without git.
 *
 * No container runs as root, and no git of the host opens a repository that an agent may have written. So a pack that
 * the relay made, and a reference of one line, are put where they belong. Every directory on the way is opened by
 * descriptor from the one that is held, never through a link. It must belong to root and be writable to no other user,
 * so nothing can replace it meanwhile, and planted files are read only as names. The reference is locked as git locks
 * it, and changed only if it has the expected value.
 */
import { named } from "@cogni/sandbox-core/Remedy"
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
  /** A pack and its index, in a directory of the relay. */
  readonly packed: { readonly directory: string; readonly name: string }
  readonly branch: BranchName
  readonly tip: CommitId
  /** Current commit of the branch; absent if the branch does not exist. */
  readonly expected: string | undefined
}

/** Maximum size of a loose reference, which is one line. */
const refBytesMax = 1024

const packedRefsBytesMax = 256 * 1024 * 1024

/**
 * Modes of new files, whatever the umask. A directory that a group may write would be refused the next time, and a
 * container could not read what others may not. The repository's own directory decides who can access it at all.
 */
const modes = { directory: 0o755, ref: 0o644 }

/** Writes the objects first and then the reference, so that an interruption leaves nothing visible. */
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
      // Uninterruptible, so that no lock is left: it takes only milliseconds.
      Effect.uninterruptible
    )
)

/** Opens nested directories, and creates those that are missing. Returns the last one. */
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

/** Gives each file its name once it is complete, and the index last, because git looks for it first. */
const addPack = (
  directory: HeldDirectory.HeldDirectory,
  { directory: source, name }: RootDelivery["packed"]
) =>
  written(async () => {
    for (const ending of ["pack", "idx"]) {
      // git's own cleanup recognizes this name as a leftover.
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
  /** Directory of the loose reference. */
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
      `${ref}.lock exists`,
      "Wait for the git that is running there; if no git is running, remove that file, then try again"
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
        `Check it, then try again, or push under another name (${named("ReopenOptions.branch")})`
      )
    yield* written(() => rename(lock, HeldDirectory.at(directory, name)))
  }).pipe(
    // After the rename, the lock's name is free, and another git may take it.
    Effect.onExit((exit) =>
      Exit.isSuccess(exit) ? Effect.void : Effect.ignore(written(() => rm(lock, { force: true })))
    )
  )
})

/** Reads the reference as git does: from its own file, or from a line of packed-refs. */
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
        remedy: "Repair the repository if you trust it, or use an intact one"
      })
    : failed(refused.message)

const failed = (message: string) =>
  new RelayFailed({
    detail: `the branch could not be written: ${oneLine(message)}`,
    remedy: `Check the repository, its disk and its permissions, then try again (${named("GitRelay.reopen")})`,
    isRetryable: true
  })

const written = <A>(run: () => Promise<A>) => attempt(run, failed)
