/**
 * Sockets, devices and pipes that an agent left in its workspace.
 */

/** Something in a workspace that is neither a file, a directory nor a link. */
export interface SpecialFile {
  /** Relative to the workspace. */
  readonly path: string
  readonly kind: "socket" | "FIFO" | "device"
}

/** Special files in the upper levels of a workspace. */
export interface SpecialFiles {
  readonly files: ReadonlyArray<SpecialFile>
  /** Whether all of the upper levels were searched. */
  readonly isWhole: boolean
}

/** How many special files the warning names. */
const namedMax = 10

/** Describes special files and what they give access to; `undefined` without special files. */
export const specialFilesWarning = ({ files }: SpecialFiles): string | undefined => {
  if (files.length === 0) return undefined
  const named = files.slice(0, namedMax).map(({ kind, path }) => `${kind} ${JSON.stringify(path)}`)
  const rest = files.length > namedMax ? ` and ${files.length - namedMax} more` : ""
  return (
    `the workspace holds ${named.join(", ")}${rest}: an agent can reach the host process at the other end, ` +
    "even without a network. Stop that process or move the file, unless the agent needs it"
  )
}
