/** Files of a workspace on the host: read, written and removed through directories that are held open. */
import { type Files } from "@cogni/sandbox-core/Executor"
import { type FileEntry } from "@cogni/sandbox-core/ExecutorValues"
import { fileEntry } from "@cogni/sandbox-core/ExecutorCommand"
import { entriesMax, fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import * as FilePath from "@cogni/sandbox-core/FilePath"
import { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import { Duration, Effect } from "effect"
import { randomBytes } from "node:crypto"
import { constants, type Stats } from "node:fs"
import { access, type FileHandle, lstat, open, opendir, rename, unlink } from "node:fs/promises"
import * as Descriptor from "./Descriptor.ts"
import * as HostTree from "./HostTree.ts"
import * as WorkspaceWalk from "./WorkspaceWalk.ts"

/** How long the host's file system may take. */
const fileSecondsMax = 60

const looksAtOnce = 64

export const make = (root: WorkspaceWalk.Root): Files<FileRefused> => {
  const walked = <A>(
    path: string,
    use: (found: WorkspaceWalk.Found, signal: AbortSignal) => A | Promise<A>,
    options?: WorkspaceWalk.WalkOptions
  ): Effect.Effect<A, FileRefused> =>
    Effect.flatMap(relative(root, path), (inner) =>
      attempt(path, async (signal) => {
        const found = await WorkspaceWalk.find(root, path, inner, options)
        try {
          return await use(found, signal)
        } finally {
          await WorkspaceWalk.close(found)
        }
      })
    ).pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(fileSecondsMax),
        orElse: () => FilePath.unreadable(path, `timed out after ${fileSecondsMax} s`)
      })
    )

  return {
    read: (path, options) =>
      Effect.flatMap(FilePath.readBytesMax(path, options?.bytesMax), (bytesMax) =>
        walked(path, ({ entry }) => {
          if (entry === undefined) throw FilePath.notFound(path)
          if (!entry.stats.isFile()) throw FilePath.notAFile(path)
          if (entry.stats.size > bytesMax) throw FilePath.tooLarge(path, bytesMax)
          return readWhole(entry, bytesMax, FilePath.tooLarge(path, bytesMax))
        })
      ),
    write: (path, content) => {
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content
      return bytes.byteLength > fileBytesMax
        ? Effect.fail(FilePath.tooLarge(path, fileBytesMax))
        : walked(
            path,
            ({ entry, parent }, signal) => {
              if (parent === undefined || entry?.stats.isFile() === false) throw FilePath.notAFile(path)
              return replace(parent, bytes, entry?.stats, signal)
            },
            { makes: true }
          )
    },
    list: (path) =>
      walked(path, ({ entry }) => {
        if (entry === undefined) throw FilePath.notFound(path)
        if (!entry.stats.isDirectory()) throw FilePath.notADirectory(path)
        return entriesOf(entry.handle, path)
      }),
    stat: (path) =>
      Effect.flatMap(relative(root, path), (inner) =>
        walked(path, ({ entry }) => {
          if (entry === undefined) throw FilePath.notFound(path)
          return describe(FilePath.nameOf(inner, root.workspace), entry.stats)
        })
      ),
    remove: (path, options) =>
      held(root, path, { keepsLink: true }, ({ entry, parent }) => {
        if (parent === undefined) return Effect.fail(FilePath.theWorkspace(path))
        if (entry === undefined) return Effect.fail(FilePath.notFound(path))
        if (!entry.stats.isDirectory()) {
          // After an interruption, the descriptor could be that of another directory.
          return Effect.uninterruptible(
            attempt(path, () => unlink(Descriptor.at(parent.directory, parent.name)))
          )
        }
        return options?.recursive === true ? removeTree(path, parent) : Effect.fail(FilePath.aDirectory(path))
      })
  }
}

/** Holds the working directory of a command, and passes a path to it that the kernel can use. */
export const withDirectory = <A, E, R>(
  root: WorkspaceWalk.Root,
  path: string,
  use: (directory: string) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | FileRefused, R> =>
  held(root, path, {}, ({ entry }) =>
    Effect.andThen(
      attempt(path, async () => {
        if (entry === undefined) throw FilePath.notFound(path)
        if (!entry.stats.isDirectory()) throw FilePath.notADirectory(path)
        await access(Descriptor.self(entry.handle), constants.X_OK)
        return Descriptor.self(entry.handle)
      }),
      use
    )
  )

/** Holds what a walk finds while the effect runs. */
const held = <A, E, R>(
  root: WorkspaceWalk.Root,
  path: string,
  options: WorkspaceWalk.WalkOptions,
  use: (found: WorkspaceWalk.Found) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | FileRefused, R> =>
  Effect.flatMap(relative(root, path), (inner) =>
    Effect.acquireUseRelease(
      attempt(path, () => WorkspaceWalk.find(root, path, inner, options)),
      use,
      (found) => Effect.promise(() => WorkspaceWalk.close(found))
    )
  )

/** Another process removes it, which reaches the directory above it through this one's descriptor. */
const removeTree = (path: string, { directory, name }: NonNullable<WorkspaceWalk.Found["parent"]>) =>
  Effect.mapError(HostTree.remove(`/proc/${process.pid}/fd/${directory.fd}/${name}`), ({ detail }) =>
    FilePath.unreadable(path, detail)
  )

/** Accepts both the real path of the workspace and its alias. */
const relative = (root: WorkspaceWalk.Root, path: string) =>
  Effect.catchIf(
    FilePath.relative(path, root.workspace),
    ({ problem }) => problem === "outside_workspace" && root.alias !== root.workspace,
    () => FilePath.relative(path, root.alias)
  )

/** Reads a file that is held without being opened. Bytes added meanwhile count towards `bytesMax`. */
export const readWhole = async (
  { handle, stats }: Descriptor.Entry,
  bytesMax: number,
  tooLarge: FileRefused
) => {
  const file = await open(Descriptor.self(handle), constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    return await Descriptor.readWhole(file, stats.size, bytesMax, tooLarge)
  } finally {
    await file.close()
  }
}

/** Writes a temporary file beside it, then renames that. */
const replace = async (
  { directory, name }: NonNullable<WorkspaceWalk.Found["parent"]>,
  bytes: Uint8Array,
  before: Stats | undefined,
  signal: AbortSignal
) => {
  const temporary = Descriptor.at(directory, `.cogni-${randomBytes(8).toString("hex")}`)
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants
  const file = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o666)
  try {
    try {
      await file.writeFile(bytes, { signal })
      if (before !== undefined) await file.chmod(before.mode & 0o777)
    } finally {
      await file.close()
    }
    signal.throwIfAborted()
    await rename(temporary, Descriptor.at(directory, name))
  } catch (thrown) {
    await unlink(temporary)
    throw thrown
  }
}

const entriesOf = async (handle: FileHandle, path: string): Promise<ReadonlyArray<FileEntry>> => {
  // A name is bytes that need not be UTF-8 text. Latin-1 preserves each byte.
  const directory = await opendir(Descriptor.self(handle), { encoding: "latin1", bufferSize: 256 })
  const names: Array<Buffer> = []
  for await (const { name } of directory) {
    names.push(Buffer.from(name, "latin1"))
    if (names.length > entriesMax) throw FilePath.tooManyEntries(path)
  }
  const entries: Array<FileEntry> = []
  for (let index = 0; index < names.length; index += looksAtOnce) {
    const looked = names.slice(index, index + looksAtOnce).map((name) => entryOf(handle, name))
    for (const entry of await Promise.all(looked)) if (entry !== undefined) entries.push(entry)
  }
  return entries.toSorted((one, other) => (one.name < other.name ? -1 : 1))
}

/** Returns `undefined` if the entry was removed meanwhile. */
const entryOf = async (directory: FileHandle, name: Buffer): Promise<FileEntry | undefined> => {
  const path = Buffer.concat([Buffer.from(Descriptor.at(directory, "")), name])
  const stats = await lstat(path).catch(Descriptor.recover(["ENOENT"], undefined))
  return stats === undefined ? undefined : describe(name.toString("utf8"), stats)
}

const describe = (name: string, stats: Stats): FileEntry => {
  const type = stats.isFile()
    ? "file"
    : stats.isDirectory()
      ? "directory"
      : stats.isSymbolicLink()
        ? "symlink"
        : "other"
  return fileEntry({ name, type, bytes: stats.size, modifiedMillis: stats.mtimeMs })
}

const attempt = <A>(path: string, run: (signal: AbortSignal) => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (thrown) => refusalOf(path, thrown) })

const problems: Readonly<Record<string, (path: string) => FileRefused>> = {
  ENOENT: FilePath.notFound,
  ENOTDIR: FilePath.notADirectory,
  EISDIR: FilePath.notAFile,
  EACCES: FilePath.denied,
  EPERM: FilePath.denied,
  EROFS: FilePath.denied,
  ENOSPC: FilePath.noSpace,
  EDQUOT: FilePath.noSpace,
  EFBIG: FilePath.noSpace,
  ENAMETOOLONG: (path) => FilePath.invalid(path, "contains a name that is too long")
}

const refusalOf = (path: string, thrown: unknown): FileRefused => {
  if (thrown instanceof FileRefused) return thrown
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code
  return problems[code ?? ""]?.(path) ?? FilePath.unreadable(path, (code ?? String(thrown)).slice(0, 200))
}
