/**
 * The files of a sandbox as a filesystem of Mastra. Commands see the same files under the same paths: absolute, or
 * relative to the workspace.
 */
import { fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import type { Sandbox } from "@cogni/sandbox-promise"
import {
  type CopyOptions,
  DirectoryNotFoundError,
  type FileContent,
  type FileEntry,
  FileNotFoundError,
  type FilesystemInfo,
  FilesystemError,
  type FileStat,
  type ListOptions,
  MastraFilesystem,
  NotDirectoryError,
  PermissionError,
  type ProviderStatus,
  type ReadOptions,
  type RemoveOptions,
  StaleFileError,
  type WriteOptions
} from "@mastra/core/workspace"
import { Buffer } from "node:buffer"
import { posix } from "node:path"
import * as FileCommands from "./FileCommands.ts"
import * as MastraErrors from "./MastraErrors.ts"
import { mediaTypeOf } from "./MediaType.ts"

/** Entries that one recursive listing returns at most. */
export const entriesMax = 10_000

/** Depth to which a recursive listing descends at most. */
const depthMax = 100

type Found = NonNullable<Awaited<ReturnType<Sandbox["files"]["stat"]>>>

export class SandboxFilesystem extends MastraFilesystem {
  readonly id: string
  readonly name = "Cogni Sandbox files"
  readonly provider = "cogni-sandbox"
  readonly icon = "folder"
  status: ProviderStatus = "pending"
  readonly #opened: () => Promise<Sandbox>

  /** `opened` opens the sandbox, unless it is open. */
  constructor(id: string, opened: () => Promise<Sandbox>) {
    super({ name: "CogniSandboxFilesystem" })
    this.id = id
    this.#opened = opened
  }

  override async readFile(path: string, options: ReadOptions = {}): Promise<string | Buffer> {
    const read = await this.#with(path, "read", ({ files }, absolute) => files.read(absolute))
    const content = Buffer.from(read.buffer, read.byteOffset, read.byteLength)
    return options.encoding === undefined ? content : content.toString(options.encoding)
  }

  override async writeFile(path: string, content: FileContent, options: WriteOptions = {}): Promise<void> {
    await this.#with(path, "write", async (sandbox, absolute) => {
      const { files } = sandbox
      if (options.recursive === false) await parentOf(sandbox, absolute, path)
      if (options.expectedMtime !== undefined) {
        const found = await files.stat(absolute)
        const modifiedAt = found === undefined ? options.expectedMtime : new Date(found.modifiedAt)
        if (modifiedAt.getTime() !== options.expectedMtime.getTime()) {
          throw new StaleFileError(path, options.expectedMtime, modifiedAt)
        }
      }
      await (options.overwrite === false
        ? FileCommands.run(sandbox, "create", { path: absolute, given: path, content })
        : files.write(absolute, content))
    })
  }

  override async appendFile(path: string, content: FileContent): Promise<void> {
    await this.#with(path, "append", (sandbox, absolute) =>
      FileCommands.run(sandbox, "append", { path: absolute, given: path, content })
    )
  }

  override async deleteFile(path: string, options: RemoveOptions = {}): Promise<void> {
    await this.#with(path, "delete", async ({ files }, absolute) => {
      if (!(await files.remove(absolute)) && options.force !== true) throw new FileNotFoundError(path)
    })
  }

  override async copyFile(src: string, dest: string, options: CopyOptions = {}): Promise<void> {
    await this.#fromTo("copy", src, dest, options)
  }

  override async moveFile(src: string, dest: string, options: CopyOptions = {}): Promise<void> {
    await this.#fromTo("move", src, dest, options)
  }

  override async mkdir(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#with(path, "mkdir", (sandbox, absolute) =>
      FileCommands.run(sandbox, "mkdir", {
        path: absolute,
        given: path,
        isRecursive: options.recursive ?? true
      })
    )
  }

  override async rmdir(path: string, options: RemoveOptions = {}): Promise<void> {
    await this.#with(path, "rmdir", async (sandbox, absolute) => {
      const found = await sandbox.files.stat(absolute)
      if (found === undefined) {
        if (options.force === true) return
        throw new DirectoryNotFoundError(path)
      }
      if (found.type !== "directory") throw new NotDirectoryError(path)
      if (options.recursive === true) await sandbox.files.remove(absolute, { recursive: true })
      else await FileCommands.run(sandbox, "rmdir", { path: absolute, given: path })
    })
  }

  override async readdir(path: string, options: ListOptions = {}): Promise<Array<FileEntry>> {
    const extensions = [options.extension ?? []].flat().map((extension) => extension.replace(/^(?!\.)/u, "."))
    return await this.#with(path, "list", async (sandbox, absolute) => {
      const entries: Array<FileEntry> = []
      const visit = async (directory: string, prefix: string, depth: number): Promise<void> => {
        for (const found of await sandbox.files.list(directory)) {
          const entry = await describe(sandbox, `${directory}/${found.name}`, found)
          const isWanted =
            entry.type === "directory" ||
            extensions.length === 0 ||
            extensions.includes(posix.extname(entry.name))
          if (isWanted) {
            if (entries.length >= entriesMax) {
              throw new FilesystemError(
                `${path} has more than ${entriesMax} entries. List a directory below it, or limit maxDepth`,
                "TOO_MANY_ENTRIES",
                path
              )
            }
            entries.push({ ...entry, name: `${prefix}${entry.name}` })
          }
          if (
            options.recursive === true &&
            entry.type === "directory" &&
            entry.isSymlink !== true &&
            depth > 0
          ) {
            await visit(`${directory}/${found.name}`, `${prefix}${found.name}/`, depth - 1)
          }
        }
      }
      await visit(absolute, "", Math.min(options.maxDepth ?? depthMax, depthMax)).catch((error: unknown) => {
        throw MastraErrors.isMissing(error) ? new DirectoryNotFoundError(path) : error
      })
      return entries
    })
  }

  override async exists(path: string): Promise<boolean> {
    return await this.#with(path, "stat", async ({ files }, absolute) => {
      try {
        return (await files.stat(absolute)) !== undefined
      } catch (error) {
        if (MastraErrors.isAbsent(error)) return false
        throw error
      }
    })
  }

  override async stat(path: string): Promise<FileStat> {
    return await this.#with(path, "stat", async ({ files }, absolute) => {
      const found = await files.stat(absolute)
      if (found === undefined) throw new FileNotFoundError(path)
      return statOf(found, absolute)
    })
  }

  /** For the mounts of a workspace: at the workspace's path, commands see these files anyway. */
  getMountConfig() {
    return { type: this.provider }
  }

  getInfo(): FilesystemInfo {
    const { error, icon, id, name, provider, status } = this
    return { id, name, provider, status, icon, readOnly: false, ...(error === undefined ? {} : { error }) }
  }

  getInstructions(): string {
    return [
      "The file tools act on the files of the sandbox's workspace, which commands see under the same paths.",
      "Paths are relative to the workspace, or absolute as in commands. Other directories are for commands only.",
      `A file that the tools read or write has at most ${fileBytesMax / 1024 ** 2} MiB.`
    ].join(" ")
  }

  async #fromTo(operation: "copy" | "move", src: string, dest: string, options: CopyOptions): Promise<void> {
    await this.#with(dest, operation, (sandbox, path) =>
      FileCommands.run(sandbox, operation, {
        path,
        given: dest,
        source: { path: inside(sandbox.workspace, src, operation), given: src },
        isRecursive: options.recursive ?? false,
        overwrites: options.overwrite ?? true
      })
    )
  }

  /** Runs an operation on an absolute path of the workspace, and rejects with errors of Mastra. */
  async #with<A>(
    path: string,
    operation: string,
    act: (sandbox: Sandbox, absolute: string) => Promise<A>
  ): Promise<A> {
    await this.ensureReady()
    const sandbox = await this.#opened()
    try {
      return await act(sandbox, inside(sandbox.workspace, path, operation))
    } catch (error) {
      throw MastraErrors.ofFile(error, path, operation)
    }
  }
}

/** Commands would also reach other directories. The sandbox's own file operations refuse them, so these do as well. */
const inside = (workspace: string, path: string, operation: string): string => {
  const absolute = posix.resolve(workspace, path)
  if (absolute === workspace || absolute.startsWith(`${workspace}/`)) return absolute
  throw new PermissionError(
    path,
    `${operation} (outside the workspace, ${workspace}; use a path in it, or a command)`
  )
}

const parentOf = async ({ files }: Sandbox, absolute: string, given: string): Promise<void> => {
  const parent = await files.stat(posix.dirname(absolute))
  if (parent === undefined) throw new DirectoryNotFoundError(posix.dirname(given))
  if (parent.type !== "directory") throw new NotDirectoryError(posix.dirname(given))
}

/** Mastra knows files and directories only. A link is described by its target. */
const describe = async (sandbox: Sandbox, absolute: string, found: Found): Promise<FileEntry> => {
  const { bytes, name, type } = found
  if (type !== "symlink") {
    return type === "directory" ? { name, type } : { name, type: "file", size: bytes }
  }
  // A link that leads nowhere, or out of the workspace, is listed too.
  const target = await sandbox.files.stat(absolute).catch((error: unknown) => {
    if (MastraErrors.isFileRefusal(error)) return undefined
    throw error
  })
  return { name, type: target?.type === "directory" ? "directory" : "file", isSymlink: true }
}

const statOf = ({ bytes, modifiedAt, name, type }: Found, path: string): FileStat => {
  const modified = new Date(modifiedAt)
  const mimeType = type === "directory" ? undefined : mediaTypeOf(name)
  return {
    name,
    path,
    type: type === "directory" ? "directory" : "file",
    size: type === "directory" ? 0 : bytes,
    // The sandbox does not report when a file was created.
    createdAt: modified,
    modifiedAt: modified,
    ...(mimeType === undefined ? {} : { mimeType })
  }
}
