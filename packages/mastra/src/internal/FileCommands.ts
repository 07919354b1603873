/**
 * File operations that a sandbox does with a command: its own file operations read, write, list and remove.
 *
 * The scripts need `sh`, `mkdir`, `rmdir`, `cp`, `mv` and `cat`. They get paths as arguments, and report with their exit
 * code what stopped them.
 */
import type { Sandbox } from "@cogni/sandbox-promise"
import {
  DirectoryNotEmptyError,
  DirectoryNotFoundError,
  FileExistsError,
  FileNotFoundError,
  FilesystemError,
  IsDirectoryError
} from "@mastra/core/workspace"
import { posix } from "node:path"
import * as MastraErrors from "./MastraErrors.ts"

/** Time limit of one of these commands, in seconds. */
const timeoutSecondsMax = 120

/** The shell itself ends with other codes. */
const codes = { notFound: 40, isDirectory: 41, exists: 43, noParent: 44, notEmpty: 45 }

const parent = 'mkdir -p -- "$(dirname -- "$1")" || exit 1'

const scripts = {
  mkdir: `
if [ -d "$1" ]; then exit 0; fi
if [ -e "$1" ] || [ -L "$1" ]; then exit ${codes.exists}; fi
if [ "$2" = recursive ]; then exec mkdir -p -- "$1"; fi
if [ ! -d "$(dirname -- "$1")" ]; then exit ${codes.noParent}; fi
exec mkdir -- "$1"`,
  rmdir: `
rmdir -- "$1" && exit 0
if [ -n "$(ls -A -- "$1")" ]; then exit ${codes.notEmpty}; fi
exit 1`,
  append: `
if [ -d "$1" ]; then exit ${codes.isDirectory}; fi
${parent}
exec cat >> "$1"`,
  create: `
${parent}
set -C
true > "$1" || { [ -e "$1" ] && exit ${codes.exists}; exit 1; }
exec cat >| "$1"`,
  copy: `
if [ ! -e "$2" ]; then exit ${codes.notFound}; fi
if [ -d "$2" ] && [ "$3" != recursive ]; then exit ${codes.isDirectory}; fi
if [ -e "$1" ] && [ "$4" != overwrite ]; then exit ${codes.exists}; fi
${parent}
exec cp -RT -- "$2" "$1"`,
  move: `
if [ ! -e "$2" ] && [ ! -L "$2" ]; then exit ${codes.notFound}; fi
if [ -e "$1" ] && [ "$4" != overwrite ]; then exit ${codes.exists}; fi
${parent}
exec mv -T -- "$2" "$1"`
}

export type Operation = keyof typeof scripts

interface FileCommand {
  /** Absolute, and in the workspace. */
  readonly path: string
  /** Path that Mastra gave, for its errors. */
  readonly given: string
  readonly source?: { readonly path: string; readonly given: string }
  readonly isRecursive?: boolean
  readonly overwrites?: boolean
  readonly content?: string | Uint8Array
}

const problems = (exitCode: number, { given, source }: FileCommand): FilesystemError | undefined => {
  switch (exitCode) {
    case codes.notFound:
      return new FileNotFoundError(source?.given ?? given)
    case codes.isDirectory:
      return new IsDirectoryError(source?.given ?? given)
    case codes.exists:
      return new FileExistsError(given)
    case codes.noParent:
      return new DirectoryNotFoundError(posix.dirname(given))
    case codes.notEmpty:
      return new DirectoryNotEmptyError(given)
    default:
      return undefined
  }
}

export const run = async (sandbox: Sandbox, operation: Operation, command: FileCommand): Promise<void> => {
  const { content, isRecursive = false, overwrites = false, path, source } = command
  const { exitCode, stderr } = await sandbox
    .exec(
      [
        "/bin/sh",
        "-c",
        scripts[operation],
        operation,
        path,
        operation === "mkdir" ? (isRecursive ? "recursive" : "") : (source?.path ?? ""),
        isRecursive ? "recursive" : "",
        overwrites ? "overwrite" : ""
      ],
      { stdin: content, timeoutSecondsMax }
    )
    .catch((error: unknown) => {
      throw MastraErrors.ofFileCommand(error, command.given, operation)
    })
  if (exitCode === 0) return
  throw (
    problems(exitCode, command) ??
    new FilesystemError(
      `${operation} failed with exit code ${exitCode}: ${stderr.trim().slice(0, 1000)}`,
      "COMMAND_FAILED",
      command.given
    )
  )
}
