/**
 * Copies files into and out of a sandbox.
 *
 * Files of the workspace are written atomically. Commands can reach more: `/tmp`, or what a link leads to. The
 * inherited tools read those files with commands, so they are also copied with commands, inside and as the agent's
 * user.
 */
import { commandFailureOf, type FileProblem, fileProblemOf } from "@cogni/sandbox-promise/Failure"
import type { Sandbox } from "@cogni/sandbox-promise/Sandbox"
import type { FileOperationError } from "deepagents"

/** Largest file that is read outside the workspace, in bytes: the limit of files in the workspace. */
const fileBytesMax = 16 * 1024 * 1024

/**
 * The framework knows four problems. A file over a limit of size or time, or on a full disk, is one that the sandbox
 * does not permit.
 */
const errors: Readonly<Record<FileProblem, FileOperationError>> = {
  not_found: "file_not_found",
  not_a_file: "is_directory",
  not_a_directory: "invalid_path",
  outside_workspace: "invalid_path",
  invalid_path: "invalid_path",
  permission_denied: "permission_denied",
  too_large: "permission_denied",
  no_space: "permission_denied",
  unreadable: "permission_denied"
}

/** Exit codes of the scripts below. The shell itself ends with others. */
const scriptErrors: Readonly<Record<number, FileOperationError>> = {
  40: "file_not_found",
  41: "is_directory",
  42: "invalid_path"
}

/** A FIFO or a device is never opened: reading one could wait without limit. */
const readScript = `
if [ -d "$1" ]; then exit 41; fi
if [ ! -e "$1" ]; then exit 40; fi
if [ ! -f "$1" ]; then exit 42; fi
exec cat -- "$1"`

const writeScript = `
if [ -d "$1" ]; then exit 41; fi
if [ -e "$1" ] && [ ! -f "$1" ]; then exit 42; fi
mkdir -p -- "$(dirname -- "$1")" && exec cat > "$1"`

const script = (text: string, path: string) => ["/bin/sh", "-c", text, "sh", path] as const

/** The outcome of one file. An error that is not about the file rejects instead. */
export type Copied<A> = { readonly value: A } | { readonly error: FileOperationError }

const failed = (exitCode: number): { readonly error: FileOperationError } => ({
  error: scriptErrors[exitCode] ?? "permission_denied"
})

const settled = async <A>(inside: Promise<A>, outside: () => Promise<Copied<A>>): Promise<Copied<A>> => {
  try {
    return { value: await inside }
  } catch (error) {
    const problem = fileProblemOf(error)
    if (problem === undefined) throw error
    return problem === "outside_workspace" ? await outside() : { error: errors[problem] }
  }
}

/** A command that broke a limit has not copied the file. Any other error is not about the file. */
const unlessFailed = (error: unknown): Copied<never> => {
  if (commandFailureOf(error) === undefined) throw error
  return { error: errors.too_large }
}

const joined = (pieces: ReadonlyArray<Uint8Array>, bytes: number): Uint8Array => {
  const all = new Uint8Array(bytes)
  let at = 0
  for (const piece of pieces) {
    all.set(piece, at)
    at += piece.byteLength
  }
  return all
}

const readOutside = async (
  sandbox: Sandbox,
  path: string,
  timeoutSecondsMax: number
): Promise<Copied<Uint8Array>> => {
  const signal = AbortSignal.timeout(timeoutSecondsMax * 1000)
  try {
    await using running = await sandbox.spawn(script(readScript, path), { signal })
    const pieces: Array<Uint8Array> = []
    let bytesRead = 0
    for await (const { bytes, channel } of running.output) {
      if (channel === "stderr") continue
      bytesRead += bytes.byteLength
      if (bytesRead > fileBytesMax) return { error: errors.too_large }
      pieces.push(bytes)
    }
    const { exitCode } = await running.exit
    return exitCode === 0 ? { value: joined(pieces, bytesRead) } : failed(exitCode)
  } catch (error) {
    if (error === signal.reason) return { error: errors.too_large }
    return unlessFailed(error)
  }
}

const writeOutside = async (
  sandbox: Sandbox,
  path: string,
  content: Uint8Array,
  timeoutSecondsMax: number
): Promise<Copied<void>> => {
  if (content.byteLength > fileBytesMax) return { error: errors.too_large }
  try {
    const { exitCode } = await sandbox.exec(script(writeScript, path), { stdin: content, timeoutSecondsMax })
    return exitCode === 0 ? { value: undefined } : failed(exitCode)
  } catch (error) {
    return unlessFailed(error)
  }
}

/** Reads a whole file of at most 16 MiB. */
export const read = (
  sandbox: Sandbox,
  path: string,
  timeoutSecondsMax: number
): Promise<Copied<Uint8Array>> =>
  settled(sandbox.files.read(path), () => readOutside(sandbox, path, timeoutSecondsMax))

/** Replaces a whole file, and creates missing directories. */
export const write = (
  sandbox: Sandbox,
  path: string,
  content: Uint8Array,
  timeoutSecondsMax: number
): Promise<Copied<void>> =>
  settled(sandbox.files.write(path, content), () => writeOutside(sandbox, path, content, timeoutSecondsMax))
