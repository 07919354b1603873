/**
 * Resolves a host path from the root down, without following a link that another user could have made.
 *
 * Each directory is held open and the next name is looked up in it, so replacing a directory during the walk has no
 * effect. A symbolic link is followed only if it and every directory above it belong to root or to this user. In
 * addition, no other user may write in those directories (a sticky directory such as `/tmp` counts as writable by
 * others), and no agent may ever have worked in one of them. Nothing is opened for reading here: a FIFO or a device is
 * left alone.
 *
 * If the system cannot look up a name in a directory that is held open (macOS), the walk goes by path and refuses any
 * path with a directory that others may write.
 */
import type { BigIntStats } from "node:fs"
import { access, constants, lstat, readlink } from "node:fs/promises"
import { isErrno, isSupported, peek, recover, self } from "./Descriptor.ts"
import { fromErrno, refused } from "./HostPathError.ts"

/** Identifies a file or directory of the host. */
export interface Identity {
  readonly device: bigint
  readonly inode: bigint
}

/** A file or directory that was found, held until it is closed. */
export interface Place {
  /** Absolute path without links, as it was walked. Only for messages, never to open it. */
  readonly path: string
  /** Path through which the kernel reaches exactly this one: `/proc/self/fd/N` of this process, where supported. */
  readonly access: string
  readonly stats: BigIntStats
  readonly close: () => Promise<void>
}

/** Result of a walk. The caller must {@link close} it. */
export interface Found {
  /** The directory that the last name was looked up in; absent for the root of the host. */
  readonly parent: (Place & { readonly name: string }) | undefined
  /** Absent if nothing has that name. */
  readonly entry: Place | undefined
  /** Every directory above the entry, from the root down. */
  readonly above: ReadonlyArray<Identity>
  /** Absolute path without links. */
  readonly path: string
}

export interface WalkOptions {
  /** Handling of a link at the end of the path: follow it like any other, refuse it, or return it as found. */
  readonly last: "follow" | "refuse" | "keep"
  /** Directories that agents may write: no link is followed in or below one. */
  readonly agents?: ReadonlyArray<Identity> | undefined
  /** Whether names can be looked up in directories that are held open. Defaults to what this system supports. */
  readonly held?: boolean | undefined
}

interface Step {
  readonly place: Place
  /** Why a link in this directory is not followed. */
  readonly open: string | undefined
}

/** The number of links that Linux follows before it returns ELOOP. */
const linksMax = 40

/** The number of look-ups in one walk. */
const stepsMax = 2_000

/** The number of directories that are held open at once. */
const depthMax = 256

/** Name that is created in each workspace of a user, and left there. Shows that an agent has worked there. */
export const agentMark = ".cogni"

const othersWrite = 0o022n

const withoutLink = "Name the path that it should lead to, without a link in it"

export const identityOf = ({ dev, ino }: BigIntStats): Identity => ({ device: dev, inode: ino })

export const isSame = (one: Identity, other: Identity): boolean =>
  one.device === other.device && one.inode === other.inode

const isOurs = ({ uid }: BigIntStats) => uid === 0n || uid === BigInt(process.geteuid?.() ?? 0)

/** Describes how others can change the entries of a directory; `undefined` if they cannot. */
const opening = async (place: Place): Promise<string | undefined> => {
  const { mode, uid } = place.stats
  if (!isOurs(place.stats)) return `belongs to uid ${uid}`
  if ((mode & othersWrite) === 0n) return undefined
  // Secrets are mounted read-only with a mode that would let all users write.
  const isReadOnly = await access(place.access, constants.W_OK).then(
    () => false,
    (thrown: unknown) => isErrno(thrown, "EROFS")
  )
  return isReadOnly ? undefined : `can be written by other users (mode ${(mode & 0o7777n).toString(8)})`
}

/** Holds the file or directory at `access`, without opening it and without following a link at its end. */
export const heldPlace = async (path: string, access: string): Promise<Place> => {
  const { handle } = await peek(access)
  try {
    const stats = await handle.stat({ bigint: true })
    return { path, access: self(handle), stats, close: () => handle.close() }
  } catch (thrown) {
    await handle.close()
    throw thrown
  }
}

const namedPlace = async (path: string): Promise<Place> => ({
  path,
  access: path,
  stats: await lstat(path, { bigint: true }),
  close: () => Promise.resolve()
})

const partsOf = (path: string) => path.split("/").filter((part) => part !== "" && part !== ".")

/** One walk down from the root. */
class Walk {
  readonly #given: string
  readonly #options: WalkOptions
  readonly #held: boolean
  #steps: Array<Step> = []
  #pending: Array<string>
  #links = 0
  #looked = 0

  constructor(given: string, options: WalkOptions) {
    this.#given = given
    this.#options = options
    this.#held = options.held ?? isSupported()
    this.#pending = partsOf(given.startsWith("/") ? given : `${process.cwd()}/${given}`)
  }

  async find(): Promise<Found> {
    try {
      await this.#enter(await this.#look("/", "/"))
      for (let name = this.#pending.shift(); name !== undefined; name = this.#pending.shift()) {
        const found = name === ".." ? await this.#up() : await this.#down(name)
        if (found !== undefined) return found
      }
      const { place } = this.#steps.pop()!
      return await this.#found(place, place.path)
    } catch (thrown) {
      await this.#leave(0)
      throw fromErrno(this.#given, thrown)
    }
  }

  /** Closes every directory except the one in which the last name was looked up. */
  async #found(entry: Place | undefined, path: string): Promise<Found> {
    const above = this.#steps.map(({ place }) => identityOf(place.stats))
    const parent = this.#steps.pop()?.place
    await this.#leave(0)
    const name = path.slice(path.lastIndexOf("/") + 1)
    return { parent: parent && { ...parent, name }, entry, above, path }
  }

  get #here(): Place {
    return this.#steps.at(-1)!.place
  }

  #look(path: string, access: string): Promise<Place> {
    return this.#held ? heldPlace(path, access) : namedPlace(path)
  }

  async #enter(place: Place): Promise<void> {
    if (this.#steps.length >= depthMax) throw this.#invalid(`lies below more than ${depthMax} directories`)
    const open = await opening(place)
    this.#steps.push({ place, open })
    if (!this.#held && open !== undefined) throw this.#unheld(place, open)
  }

  /** Closes every directory below the first `count`. */
  async #leave(count: number): Promise<void> {
    for (const { place } of this.#steps.splice(count)) await place.close()
  }

  /** Goes back along the walk. The kernel is never asked for the parent of a directory. */
  async #up(): Promise<undefined> {
    if (this.#steps.length > 1) await this.#leave(this.#steps.length - 1)
  }

  async #down(name: string): Promise<Found | undefined> {
    if (++this.#looked > stepsMax) throw this.#invalid("passes through too many directories")
    const here = this.#here
    const path = `${here.path === "/" ? "" : here.path}/${name}`
    const place = await this.#look(path, `${here.access}/${name}`).catch((thrown: unknown) => {
      if (!isErrno(thrown, "ENOENT")) throw thrown
      if (this.#pending.length === 0) return undefined
      throw this.#missing(path)
    })
    const isLast = this.#pending.length === 0
    if (place?.stats.isSymbolicLink() === true && !(isLast && this.#options.last === "keep")) {
      await this.#follow(name, place, isLast)
      return undefined
    }
    if (place?.stats.isDirectory() === true) {
      try {
        await this.#enter(place)
      } catch (thrown) {
        if (this.#here !== place) await place.close()
        throw thrown
      }
      return undefined
    }
    if (!isLast) {
      await place?.close()
      throw fromErrno(this.#given, { code: "ENOTDIR" })
    }
    return this.#found(place, path)
  }

  async #follow(name: string, link: Place, isLast: boolean): Promise<void> {
    let target: string
    try {
      await this.#permit(link, isLast)
      target = await readlink(`${this.#here.access}/${name}`)
    } finally {
      await link.close()
    }
    this.#pending.unshift(...partsOf(target))
    if (target.startsWith("/")) await this.#leave(1)
  }

  async #permit(link: Place, isLast: boolean): Promise<void> {
    const refuse = (why: string) => this.#linked(link, why)
    if (isLast && this.#options.last === "refuse") throw refuse("and is not followed")
    if (++this.#links > linksMax) throw this.#invalid("passes through too many symbolic links")
    if (!isOurs(link.stats)) throw refuse(`that belongs to uid ${link.stats.uid}`)
    for (const { open, place } of this.#steps) {
      if (open !== undefined) throw refuse(`below ${place.path}, which ${open}`)
      if (await this.#isAgents(place)) throw refuse(`below ${place.path}, in which an agent may have made it`)
    }
  }

  async #isAgents(place: Place): Promise<boolean> {
    const identity = identityOf(place.stats)
    if (this.#options.agents?.some((agent) => isSame(agent, identity)) === true) return true
    return lstat(`${place.access}/${agentMark}`).then(() => true, recover(["ENOENT", "ENOTDIR"], false))
  }

  #linked({ path }: Place, why: string) {
    const where = path === this.#given ? "is" : `passes through ${path},`
    return refused(this.#given, "link_refused", `${where} a symbolic link ${why}`, withoutLink, path)
  }

  #unheld({ path }: Place, open: string) {
    const detail = `lies below ${path}, which ${open}, and this system cannot open it safely`
    const remedy = "Name a path in directories that only this user can write"
    return refused(this.#given, "permission_denied", detail, remedy, path)
  }

  #missing(path: string) {
    const detail = `lies below ${path}, which does not exist`
    return refused(this.#given, "not_found", detail, "Make that directory first, or check its spelling", path)
  }

  #invalid(detail: string) {
    return refused(this.#given, "invalid_path", detail, withoutLink)
  }
}

/** Walks to a path, relative to the working directory of this process. Throws `HostPathRefused`. */
export const find = (path: string, options: WalkOptions): Promise<Found> => {
  if (path === "" || path.includes("\0")) {
    const detail = path === "" ? "is empty" : "contains a NUL character"
    throw refused(path, "invalid_path", detail, "Name a file or directory")
  }
  return new Walk(path, options).find()
}

export const close = async ({ entry, parent }: Found): Promise<void> => {
  await entry?.close()
  await parent?.close()
}
