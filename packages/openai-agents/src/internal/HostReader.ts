/**
 * Reads files of the host that the application has named, as Promises: the only place where this package runs effects.
 *
 * Every path is opened by host-files, which refuses links that another user could have made, and devices.
 */
import { fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import { Unsupported } from "@cogni/sandbox-promise"
import { SandboxLocalDirReadError, SandboxLocalFileReadError } from "@openai/agents-core/sandbox"
import { Effect, Layer, ManagedRuntime } from "effect"
import { relative, resolve } from "node:path"

/** Entries that one manifest may copy from the host. */
const entriesMax = 10_000

/** Bytes that one manifest may copy from the host. */
const copiedBytesMax = 256 * 1024 * 1024

const runtime = ManagedRuntime.make(Layer.empty)

/** Reads a regular file of at most `bytesMax` bytes. */
export const readFile = async (path: string, bytesMax: number): Promise<Uint8Array> =>
  (await runtime.runPromise(HostFile.read(path, { bytesMax }))).bytes

/** A file below a source. The path is relative to the source, and empty for the source itself. */
export interface Copied {
  readonly path: string
  readonly bytes: Uint8Array
}

/** A directory of the host that manifests may copy from. */
export interface Source {
  /** Files one by one, so that only one of them is in memory. */
  readonly copy: () => AsyncIterable<Copied>
}

/**
 * Finds what `src` names in one of the directories that manifests may copy from. Links in them are not followed out of
 * them, and one inside a copied directory is refused.
 */
export const source = async (
  type: "local_file" | "local_dir",
  src: string,
  roots: ReadonlyArray<string>
): Promise<Source> => {
  const path = resolve(src)
  const found = roots
    .map((root) => ({ root, inner: relative(resolve(root), path) }))
    .find(({ inner }) => inner !== ".." && !inner.startsWith("../"))
  if (found === undefined) {
    throw new Unsupported({
      operation: `manifest entry ${type}`,
      reason: `${JSON.stringify(src.slice(0, 200))} is in no directory that manifests may copy from. Name one in localSources`
    })
  }
  const held = await runtime.runPromise(
    Effect.scoped(Effect.map(HeldDirectory.hold(resolve(found.root)), ({ path }) => path))
  )
  const files = WorkspaceFiles.make({ workspace: held, alias: held })
  const at = (path: string) =>
    path === "" ? found.inner || "." : found.inner === "" ? path : `${found.inner}/${path}`
  const read = (path: string) => runtime.runPromise(files.read(at(path)))
  if (type === "local_file")
    return {
      copy: async function* () {
        yield { path: "", bytes: await read("") }
      }
    }
  return { copy: () => copyDirectory((path) => runtime.runPromise(files.list(at(path))), read, src) }
}

type Listed = ReadonlyArray<{ readonly name: string; readonly type: string; readonly bytes: number }>

const copyDirectory = async function* (
  list: (path: string) => Promise<Listed>,
  read: (path: string) => Promise<Uint8Array>,
  src: string
): AsyncGenerator<Copied> {
  const pending = [""]
  let entries = 0
  let copiedBytes = 0
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for (const { bytes: size, name, type } of await list(directory)) {
      const path = directory === "" ? name : `${directory}/${name}`
      if (++entries > entriesMax) throw tooMuch(src, `more than ${entriesMax} entries`)
      if (type === "directory") pending.push(path)
      else if (type !== "file") {
        throw new SandboxLocalDirReadError(
          `${JSON.stringify(path.slice(0, 200))} is a ${type === "symlink" ? "link" : "special file"}. Only files and directories are copied: replace it, or name another directory.`
        )
      } else {
        if (size > fileBytesMax) throw tooLarge(path)
        const bytes = await read(path)
        copiedBytes += bytes.byteLength
        if (copiedBytes > copiedBytesMax) throw tooMuch(src, `more than ${copiedBytesMax} bytes`)
        yield { path, bytes }
      }
    }
  }
}

const tooLarge = (path: string) =>
  new SandboxLocalFileReadError(
    `${JSON.stringify(path.slice(0, 200))} has more than ${fileBytesMax} bytes, which is the limit of one file. Leave it out, or split it.`
  )

const tooMuch = (src: string, what: string) =>
  new SandboxLocalDirReadError(
    `${JSON.stringify(src.slice(0, 200))} has ${what}. Name a smaller directory, or open the sandbox with a workspace that has the files.`
  )
