/** Errors of a sandbox in the words of Mastra. Each keeps ours as its `cause`. */
import { Closed, SandboxError } from "@cogni/sandbox-promise"
import { commandFailureOf, type FileProblem, fileProblemOf, killedCode } from "@cogni/sandbox-promise/Failure"
import {
  FileNotFoundError,
  FilesystemError,
  IsDirectoryError,
  NotDirectoryError,
  PermissionError,
  SandboxError as MastraError,
  SandboxExecutionError
} from "@mastra/core/workspace"

const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown))

const because = <E extends Error>(error: E, cause: unknown): E => {
  error.cause = cause
  return error
}

/** The sandbox cannot run anything, or not this. Errors that are not the sandbox's own are returned as they are. */
export const ofSandbox = (thrown: unknown): unknown => {
  if (thrown instanceof Closed) return because(new MastraError(thrown.message, "NOT_READY"), thrown)
  const failure = commandFailureOf(thrown)
  if (failure !== undefined) {
    const { exitCode = killedCode, message, output } = failure
    const stderr = output.stderr.text === "" ? message : `${output.stderr.text}\n${message}`
    return because(new SandboxExecutionError(message, exitCode, output.stdout.text, stderr), thrown)
  }
  if (!(thrown instanceof SandboxError)) return thrown
  const { message, reason } = thrown
  const code = reason._tag === "FileRefused" ? "INVALID_ARGUMENT" : "NOT_READY"
  return because(new MastraError(message, code, { reason: reason._tag }), thrown)
}

/** The error of a file operation. `path` is the one that Mastra gave. */
export const ofFile = (thrown: unknown, path: string, operation: string): unknown => {
  const problem = fileProblemOf(thrown)
  return problem === undefined
    ? ofSandbox(thrown)
    : because(refusal(problem, path, operation, messageOf(thrown)), thrown)
}

const refusal = (problem: FileProblem, path: string, operation: string, message: string): FilesystemError => {
  switch (problem) {
    case "not_found":
      return new FileNotFoundError(path)
    case "not_a_file":
      return new IsDirectoryError(path)
    case "not_a_directory":
      return new NotDirectoryError(path)
    case "outside_workspace":
    case "permission_denied":
      return new PermissionError(path, `${operation} (${message})`)
    default:
      return new FilesystemError(message, problem.toUpperCase(), path)
  }
}

/** A command that was to change a file broke a limit. */
export const ofFileCommand = (thrown: unknown, path: string, operation: string): unknown => {
  const failure = commandFailureOf(thrown)
  return failure === undefined
    ? ofSandbox(thrown)
    : because(new FilesystemError(`${operation} failed: ${failure.message}`, "COMMAND_FAILED", path), thrown)
}

/** Whether the sandbox refused this file, and nothing else is wrong. */
export const isFileRefusal = (thrown: unknown): boolean => fileProblemOf(thrown) !== undefined

/** Whether nothing has the path. */
export const isMissing = (thrown: unknown): boolean => fileProblemOf(thrown) === "not_found"

/** Whether nothing has the path, or it leads below a file, where nothing can be. */
export const isAbsent = (thrown: unknown): boolean =>
  isMissing(thrown) || fileProblemOf(thrown) === "not_a_directory"
