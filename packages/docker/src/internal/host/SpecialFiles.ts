/**
 * Sockets, FIFOs and devices of the host in the upper levels of a workspace.
 *
 * A mounted socket leads to whatever listens on it, whichever network the sandbox has: an agent that finds one of an
 * editor, a database or a build daemon speaks to it as the workspace's owner. Nothing is opened here: names and types
 * are read from directories that are held open, and no link is followed.
 */
import type { SpecialFile, SpecialFiles } from "@cogni/sandbox-core/Workspace"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect } from "effect"
import { constants, type Dirent } from "node:fs"
import { opendir } from "node:fs/promises"

/** How deep is looked: 1 is the workspace itself. */
export const levelsMax = 3

/** How many names are read in all. */
export const entriesMax = 10_000

/** How many directories are opened in all. */
export const directoriesMax = 500

/** The upper levels first; what cannot be read, or is too much, is left out and said. */
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

/** Uses a directory below one that is held, each on the way held as well; `false` where it cannot be read to its end. */
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
