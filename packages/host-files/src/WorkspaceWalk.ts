/**
 * From the workspace down to one of its files, without leaving it whatever somebody changes meanwhile.
 *
 * Each directory is held open and the next name is looked up in it (`/proc/self/fd/…/name`), as openat2(2) with
 * RESOLVE_BENEATH would, which Node does not have. A link is read and walked like any other part of the path; one that
 * leads out is refused. Nothing is opened for reading here: a FIFO or a device is looked at and left alone.
 */
import * as FilePath from "@cogni/sandbox-core/FilePath"
import { constants } from "node:fs"
import { type FileHandle, mkdir, readlink } from "node:fs/promises"
import { at, type Entry, peek, recover } from "./Descriptor.ts"

/** Where the files are. */
export interface Root {
  /** Without a link in it. */
  readonly workspace: string
  /** What else leads there: as it was given. */
  readonly alias: string
}

/** To be closed by whoever asked ({@link close}). */
export interface Found {
  /** Absent where the path is that of the workspace itself. */
  readonly parent: { readonly directory: FileHandle; readonly name: string } | undefined
  /** Absent where there is nothing of that name. */
  readonly entry: Entry | undefined
}

/** What the kernel follows before it says ELOOP. */
const linksMax = 40

/** A path has 2048 parts at most; links, and what leads up again, can make that more. */
const stepsMax = 10_000

const partsOf = (path: string) => path.split("/").filter((part) => part !== "" && part !== ".")

/** What is left of an absolute path below the workspace, in whichever way that is spelled. */
const below = ({ alias, workspace }: Root, path: string): ReadonlyArray<string> | undefined => {
  const parts = partsOf(path)
  const prefix = [workspace, alias]
    .map(partsOf)
    .find((prefix) => prefix.every((part, at) => parts[at] === part))
  return prefix === undefined ? undefined : parts.slice(prefix.length)
}

export const close = async ({ entry, parent }: Found): Promise<void> => {
  await entry?.handle.close()
  await parent?.directory.close()
}

/** One way through the workspace. */
class Walk {
  readonly #root: Root
  readonly #path: string
  readonly #makes: boolean
  #here: Entry | undefined
  #walked: Array<string> = []
  #pending: Array<string>
  #links = 0
  #steps = 0

  constructor(root: Root, path: string, relative: string, makes: boolean) {
    this.#root = root
    this.#path = path
    this.#makes = makes
    this.#pending = partsOf(relative)
  }

  async find(): Promise<Found> {
    try {
      let here = await this.#top()
      for (let name = this.#pending.shift(); name !== undefined; name = this.#pending.shift()) {
        if (++this.#steps > stepsMax)
          throw FilePath.invalid(this.#path, "passes through too many directories")
        if (name === "..") {
          if (this.#walked.pop() === undefined) throw this.#outside()
          here = await this.#top()
          continue
        }
        const entry = await this.#look(here, name)
        if (entry?.stats.isSymbolicLink() === true) {
          await entry.handle.close()
          here = await this.#follow(here, name)
        } else if (this.#pending.length === 0) {
          return { parent: { directory: here.handle, name }, entry }
        } else if (entry === undefined) {
          throw FilePath.notFound(this.#path)
        } else {
          here = await this.#enter(entry, name)
        }
      }
      return { parent: undefined, entry: here }
    } catch (thrown) {
      await this.#here?.handle.close()
      throw thrown
    }
  }

  async #replace(entry: Entry): Promise<Entry> {
    const before = this.#here
    this.#here = entry
    await before?.handle.close()
    return entry
  }

  async #enter(entry: Entry, name: string): Promise<Entry> {
    this.#walked.push(name)
    await this.#replace(entry)
    if (!entry.stats.isDirectory()) throw FilePath.notADirectory(this.#path)
    return entry
  }

  /** From the workspace again, by what was walked: what lies above a directory is never asked of the kernel. */
  async #top(): Promise<Entry> {
    this.#pending = [...this.#walked, ...this.#pending]
    this.#walked = []
    return this.#replace(await peek(this.#root.workspace, constants.O_DIRECTORY))
  }

  async #look(here: Entry, name: string): Promise<Entry | undefined> {
    const path = at(here.handle, name)
    const absent = recover(["ENOENT"], undefined)
    const entry = await peek(path).catch(absent)
    if (entry !== undefined || !this.#makes || this.#pending.length === 0) return entry
    await mkdir(path).catch(recover(["EEXIST"], undefined))
    return peek(path).catch(absent)
  }

  async #follow(here: Entry, name: string): Promise<Entry> {
    if (++this.#links > linksMax) throw FilePath.invalid(this.#path, "passes through too many links")
    const target = await readlink(at(here.handle, name))
    if (!target.startsWith("/")) {
      this.#pending.unshift(...partsOf(target))
      return here
    }
    const inside = below(this.#root, target)
    if (inside === undefined) throw this.#outside()
    this.#pending.unshift(...inside)
    this.#walked = []
    return this.#top()
  }

  #outside() {
    return FilePath.outsideOf(this.#root.workspace)(this.#path)
  }
}

/**
 * `relative` is a path from the workspace. With `makes`, directories that are missing above its last name are made.
 * Throws what the kernel says, or a `FileRefused`; `path` is what that calls it.
 */
export const find = (root: Root, path: string, relative: string, makes = false): Promise<Found> =>
  new Walk(root, path, relative, makes).find()
