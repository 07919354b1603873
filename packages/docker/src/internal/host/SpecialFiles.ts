/**
 * Finds sockets, FIFOs and devices of the host in the upper levels of a workspace.
 *
 * A mounted socket reaches the process that listens on it, even if the sandbox has no network: an agent that finds the
 * socket of an editor, a database or a build daemon talks to it as the workspace's owner. No special file is opened:
 * names and types are read from directories that are held open, and no link is followed.
 */
import type { SpecialFile, SpecialFiles } from "@cogni/sandbox-core/SpecialFiles"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect } from "effect"
import { constants, type Dirent } from "node:fs"
import { opendir } from "node:fs/promises"

/** Number of directory levels to check: 1 is the workspace itself. */
export const levelsMax = 3

/** Maximum number of names to read in total. */
export const entriesMax = 10_000

/** Maximum number of directories to open in total. */
export const directoriesMax = 500

/** Searches level by level. `isWhole` is `false` if a directory was unreadable or a maximum was reached. */
export const find = ({ access }: Pick<HeldDirectory, "access">): Effect.Effect<SpecialFiles> =>
  Effect.promise(async (signal) => {
    const files: Array<SpecialFile> = []
    let isWhole = true
    let entries = 0
    let directories = 0
    let level: ReadonlyArray<ReadonlyArray<string>> = [[]]
    for (let depth = 0; depth < levelsMax; depth++) {
      const next: Array<ReadonlyArray<string>> = []
      for (const names of level) {
        signal.throwIfAborted()
        if (entries >= entriesMax || ++directories > directoriesMax) return { files, isWhole: false }
        const read = await within(access, names, async (path) => {
          for await (const entry of await opendir(path)) {
            if (++entries > entriesMax) return false
            const kind = kindOf(entry)
            if (kind !== undefined) files.push({ path: [...names, entry.name].join("/"), kind })
            else if (entry.isDirectory()) next.push([...names, entry.name])
          }
          return true
        })
        isWhole &&= read
      }
      level = next
    }
    return { files, isWhole }
  })

const kindOf = (entry: Dirent): SpecialFile["kind"] | undefined =>
  entry.isSocket()
    ? "socket"
    : entry.isFIFO()
      ? "FIFO"
      : entry.isBlockDevice() || entry.isCharacterDevice()
        ? "device"
        : undefined

/** Opens each directory on the way to `names`, and applies `use` to the last. Returns `false` if one is unreadable. */
const within = async (
  access: string,
  names: ReadonlyArray<string>,
  use: (path: string) => Promise<boolean>
): Promise<boolean> => {
  const [name, ...rest] = names
  if (name === undefined) return use(access).catch(() => false)
  const entry = await Descriptor.peek(`${access}/${name}`, constants.O_DIRECTORY).catch(() => undefined)
  if (entry === undefined) return false
  try {
    return await within(Descriptor.self(entry.handle), rest, use)
  } finally {
    await entry.handle.close()
  }
}
