/** Errors of a sandbox in the words of Mastra. Each keeps ours as its `cause`. */
import { Closed, SandboxError } from "@cogni/sandbox-promise"
import {
  FileNotFoundError,
  FilesystemError,
  IsDirectoryError,
  NotDirectoryError,
  PermissionError,
  SandboxError as MastraError,
  SandboxExecutionError
} from "@mastra/core/workspace"

/** Exit code of a command that could not be started, as a shell reports it. */
const refusedCode = 126

const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown))

const because = <E extends Error>(error: E, cause: unknown): E => {
  error.cause = cause
  return error
}

/** The sandbox cannot run anything, or not this. Errors that are not the sandbox's own are returned as they are. */
export const ofSandbox = (thrown: unknown): unknown => {
  if (thrown instanceof Closed) return because(new MastraError(thrown.message, "NOT_READY"), thrown)
  if (!(thrown instanceof SandboxError)) return thrown
  const { message, reason } = thrown
  return because(
    reason._tag === "CommandRefused" || reason._tag === "InvalidSpec"
      ? new SandboxExecutionError(message, refusedCode, "", message)
      : new MastraError(message, reason._tag === "FileRefused" ? "INVALID_ARGUMENT" : "NOT_READY", {
          reason: reason._tag
        }),
    thrown
  )
}

/** The sandbox goes on after a command that broke one of these limits. */
const limits = new Set<SandboxError["reason"]["_tag"]>(["OomKilled", "PidsExhausted", "CommandInputFailed"])

/** Exit code of a command that was killed. */
export const killedCode = 137

/** How a command ended that broke a limit of its own, or undefined if the sandbox itself is over. */
export const brokenLimit = (
  thrown: unknown
): { readonly exitCode: number; readonly message: string } | undefined =>
  thrown instanceof SandboxError && limits.has(thrown.reason._tag)
    ? { exitCode: thrown.partial?.exitCode ?? killedCode, message: thrown.message }
    : undefined

/** The error of a file operation. `path` is the one that Mastra gave. */
export const ofFile = (thrown: unknown, path: string, operation: string): unknown => {
  const problem = problemOf(thrown)
  return problem === undefined
    ? ofSandbox(thrown)
    : because(refusal(problem, path, operation, messageOf(thrown)), thrown)
}

type Problem = Extract<SandboxError["reason"], { readonly _tag: "FileRefused" }>["problem"]

const refusal = (problem: Problem, path: string, operation: string, message: string): FilesystemError => {
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

const problemOf = (thrown: unknown): Problem | undefined =>
  thrown instanceof SandboxError && thrown.reason._tag === "FileRefused" ? thrown.reason.problem : undefined

/** Whether the sandbox refused this file, and nothing else is wrong. */
export const isFileRefusal = (thrown: unknown): boolean => problemOf(thrown) !== undefined

/** Whether nothing has the path. */
export const isMissing = (thrown: unknown): boolean => problemOf(thrown) === "not_found"

/** Whether nothing has the path, or it leads below a file, where nothing can be. */
export const isAbsent = (thrown: unknown): boolean =>
  isMissing(thrown) || problemOf(thrown) === "not_a_directory"
