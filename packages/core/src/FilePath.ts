/**
 * Validates paths of files in the workspace, and defines the errors for files that cannot be accessed.
 *
 * The check is lexical. Symbolic links are resolved where the files are.
 */
import * as Effect from "effect/Effect"
import { entriesMax, fileBytesMax } from "./ExecutorLimits.ts"
import { type FileProblem, FileRefused } from "./SandboxReason.ts"
import { target } from "./SandboxPlace.ts"

/** The kernel's `PATH_MAX`, less its closing NUL. */
const pathBytesMax = 4095

/** The kernel's `NAME_MAX`: one part of a path. */
const nameBytesMax = 255

const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

const refusal = (problem: FileProblem, detail: string, remedy: string) => (path: string) =>
  new FileRefused({ path, problem, detail, remedy })

export const invalid = (path: string, detail: string) =>
  refusal("invalid_path", detail, "Name a file below the workspace")(path)

export const notFound = refusal(
  "not_found",
  "does not exist",
  "List the directory above it to see what exists"
)

export const denied = refusal(
  "permission_denied",
  "cannot be accessed by the user that commands run as",
  "Look at its permissions with a command, such as ls -la"
)

export const noSpace = refusal(
  "no_space",
  "cannot be written: no space is left, or the file would be over its limit",
  "Remove what is no longer needed, or raise limits.workspaceBytesMax"
)

export const notAFile = refusal(
  "not_a_file",
  "is not a plain file",
  "List it if it is a directory; FIFOs, devices and sockets are never opened"
)

/** For an operation that a directory needs to be named for. */
export const aDirectory = refusal(
  "not_a_file",
  "is a directory",
  "Set recursive if all that it contains can be removed with it"
)

/** For an operation that would remove the workspace. */
export const theWorkspace = (path: string) =>
  refusal(
    "invalid_path",
    "is the workspace itself, which cannot be removed",
    "Remove the entries that the sandbox no longer needs"
  )(path)

export const notADirectory = refusal(
  "not_a_directory",
  "is, or lies below, something that is not a directory",
  "List the directory above it to see what exists"
)

export const tooLarge = (path: string, bytesMax: number) =>
  refusal(
    "too_large",
    `has more than ${bytesMax} bytes`,
    "Read a part of it with a command, such as head -c or sed -n"
  )(path)

/** Returns how many bytes a read may return. Refuses a limit that is not a whole number, because it would not limit. */
export const readBytesMax = (path: string, bytesMax = fileBytesMax): Effect.Effect<number, FileRefused> =>
  Number.isInteger(bytesMax) && bytesMax >= 0
    ? Effect.succeed(Math.min(bytesMax, fileBytesMax))
    : Effect.fail(
        refusal(
          "too_large",
          `cannot be read with a limit of ${bytesMax} bytes`,
          `Set bytesMax to a whole number from 0 to ${fileBytesMax}`
        )(path)
      )

export const tooManyEntries = refusal(
  "too_large",
  `has more than ${entriesMax} entries`,
  "Look for what you need with a command, such as find or rg --files"
)

/** `why` is the reason that the file system or the sandbox gave. */
export const unreadable = (path: string, why: string) =>
  refusal(
    "unreadable",
    `cannot be used${why === "" ? "" : ` (${why})`}`,
    "Look at it with a command, such as ls -la"
  )(path)

/** For a workspace at another path than a sandbox's. */
export const outsideOf = (workspace: string) =>
  refusal(
    "outside_workspace",
    "leads out of the workspace",
    `Name a file below ${workspace}; use commands for other files`
  )

export const outside = outsideOf(target)

/** Returns the last name of a path that is relative to the workspace, or the name of the workspace. */
export const nameOf = (relative: string, workspace = target): string =>
  (relative === "" ? workspace : relative).split("/").at(-1) ?? ""

/** Returns a path relative to the workspace, without `.`, `..` and empty parts; empty for the workspace itself. */
export const relative = (path: string, workspace = target): Effect.Effect<string, FileRefused> => {
  if (path.includes("\0")) return Effect.fail(invalid(path, "contains a NUL"))
  if (bytesOf(path) > pathBytesMax) {
    return Effect.fail(invalid(path, `is longer than ${pathBytesMax} bytes`))
  }
  const prefix = workspace.split("/").filter((part) => part !== "")
  const parts = path.startsWith("/") ? [] : [...prefix]
  for (const part of path.split("/")) {
    if (part === "..") {
      // After a link, `..` does not lead to the part before it, so a path must not go above the root and come back.
      if (parts.pop() === undefined) return Effect.fail(outsideOf(workspace)(path))
    } else if (part !== "" && part !== ".") parts.push(part)
  }
  if (!prefix.every((part, index) => parts[index] === part)) return Effect.fail(outsideOf(workspace)(path))
  if (parts.some((part) => bytesOf(part) > nameBytesMax)) {
    return Effect.fail(invalid(path, `contains a name of more than ${nameBytesMax} bytes`))
  }
  return Effect.succeed(parts.slice(prefix.length).join("/"))
}
