/**
 * Resolves a path in the workspace without leaving it, whatever another process changes meanwhile.
 *
 * Each directory is held open and the next name is looked up in it (`/proc/self/fd/…/name`), like openat2(2) with
 * RESOLVE_BENEATH, which Node does not have. A link is read and walked like any other part of the path; one that leads
 * out is refused. Nothing is opened for reading here: a FIFO or a device is left alone.
 */
import * as FilePath from "@cogni/sandbox-core/FilePath"
import { constants } from "node:fs"
import { type FileHandle, mkdir, readlink } from "node:fs/promises"
import { at, type Entry, peek, recover } from "./Descriptor.ts"

/** Location of the workspace. */
export interface Root {
  /** Path without links. */
  readonly workspace: string
  /** The path as given, which may contain links. */
  readonly alias: string
}

/** Result of a walk. The caller must {@link close} it. */
export interface Found {
  /** Absent for the workspace itself. */
  readonly parent: { readonly directory: FileHandle; readonly name: string } | undefined
  /** Absent if nothing has that name. */
  readonly entry: Entry | undefined
}

/** The number of links that the kernel follows before it returns ELOOP. */
const linksMax = 40

/** A path has at most 2048 parts. Links and `..` can add steps. */
const stepsMax = 10_000

const partsOf = (path: string) => path.split("/").filter((part) => part !== "" && part !== ".")

/** Returns the parts of an absolute path below the workspace or its alias; `undefined` outside. */
const below = ({ alias, workspace }: Root, path: string): ReadonlyArray<string> | undefined => {
  const parts = partsOf(path)
  const prefix = [workspace, alias]
    .map(partsOf)
    .find((prefix) => prefix.every((part, at) => parts[at] === part))
  return prefix === undefined ? undefined : parts.slice(prefix.length)
}

/** How a walk treats names that do not exist, and a link at its end. */
export interface WalkOptions {
  /** Whether missing directories above the last name are made (default false). */
  readonly makes?: boolean | undefined
  /** Whether a link at the end is returned instead of followed (default false). */
  readonly keepsLink?: boolean | undefined
}

export const close = async ({ entry, parent }: Found): Promise<void> => {
  await entry?.handle.close()
  await parent?.directory.close()
}

/** One walk through the workspace. */
class Walk {
  readonly #root: Root
  readonly #path: string
  readonly #options: WalkOptions
  #here: Entry | undefined
  #walked: Array<string> = []
  #pending: Array<string>
  #links = 0
  #steps = 0

  constructor(root: Root, path: string, relative: string, options: WalkOptions) {
    this.#root = root
    this.#path = path
    this.#options = options
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
        const isKept = this.#options.keepsLink === true && this.#pending.length === 0
        if (entry?.stats.isSymbolicLink() === true && !isKept) {
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

  /** Walks from the workspace again. The kernel is never asked for the parent of a directory. */
  async #top(): Promise<Entry> {
    this.#pending = [...this.#walked, ...this.#pending]
    this.#walked = []
    return this.#replace(await peek(this.#root.workspace, constants.O_DIRECTORY))
  }

  async #look(here: Entry, name: string): Promise<Entry | undefined> {
    const path = at(here.handle, name)
    const absent = recover(["ENOENT"], undefined)
    const entry = await peek(path).catch(absent)
    if (entry !== undefined || this.#options.makes !== true || this.#pending.length === 0) return entry
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

/** Walks to `relative`, a path relative to the workspace. Throws the kernel's error, or a `FileRefused` with `path`. */
export const find = (root: Root, path: string, relative: string, options: WalkOptions = {}): Promise<Found> =>
  new Walk(root, path, relative, options).find()
